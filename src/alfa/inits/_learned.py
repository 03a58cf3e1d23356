"""MAML: the outer loop learns the initialization."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from alfa.inits._base import ModelInit, register_init


@register_init("learned")
class LearnedInit(ModelInit):
    """The model's parameters are theta, trained by the outer loop (Eq. 2).

    Args:
        model: holds theta.
        adapt: patterns of the names of the adapted parameters, such as ``["head.*"]``; by
            default all but those of normalization layers, and those that are frozen
            (`requires_grad_(False)`) if others are not. The outer loop trains the other
            parameters, too, and all tasks share them.

    Example:
        >>> from alfa import LearnedInit
        >>> from torch import nn
        >>> list(LearnedInit(nn.Linear(3, 1)).layers)
        ['weight', 'bias']
    """

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        return self.model.parameters()
