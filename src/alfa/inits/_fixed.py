"""A random draw that is never trained."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.inits._base import Init, Patterns, Support, register_init, select_layers
from alfa.types import Layers, Params


@register_init("fixed")
class FixedInit(Init):
    """The model's parameters as they are, for all tasks and for good.

    Args:
        model: holds theta, normally a random draw.
        adapt: patterns of the names of parameters to adapt; by default all but those of
            normalisation layers.

    Example:
        >>> from alfa import FixedInit
        >>> from torch import nn
        >>> list(FixedInit(nn.Linear(3, 1)).meta_parameters())
        []
    """

    def __init__(self, model: nn.Module, *, adapt: Patterns | None = None) -> None:
        super().__init__()
        self.model = model
        self._layers = select_layers(model, adapt)

    @property
    def layers(self) -> Layers:
        return self._layers

    def start(self, support: Support) -> Params:
        theta = torch.cat([self.model.get_parameter(name).flatten() for name in self._layers])
        return Params(theta.detach().expand(support.num_tasks, -1), self._layers)

    def shared(self) -> dict[str, Tensor]:
        return {n: p.detach() for n, p in self.model.named_parameters() if n not in self._layers}

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        return iter(())
