"""A random draw that is never trained."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from alfa.inits._base import ModelInit, Support, register_init
from alfa.types import Params


@register_init("fixed")
class FixedInit(ModelInit):
    """The model's current parameters, for all tasks; the outer loop does not train them.

    Args:
        model: holds theta, normally a random draw.
        adapt: patterns of the names of the adapted parameters; by default all but those of
            normalization layers.

    Example:
        >>> from alfa import FixedInit
        >>> from torch import nn
        >>> list(FixedInit(nn.Linear(3, 1)).meta_parameters())
        []
    """

    def start(self, support: Support) -> Params:
        theta = super().start(support)
        return theta.like(theta.flat.detach())

    def shared(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in super().shared().items()}

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        return iter(())
