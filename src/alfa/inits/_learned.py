"""MAML: the initialization is what is learned."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.inits._base import Init, Patterns, Support, register_init, select_layers
from alfa.types import Layers, Params


@register_init("learned")
class LearnedInit(Init):
    """The model's parameters are theta, trained by the outer loop (Eq. 2).

    Args:
        model: holds theta.
        adapt: patterns of the names of parameters to adapt, such as ``["head.*"]``; by
            default all but those of normalisation layers, and those that are frozen
            (`requires_grad_(False)`) where others are not. The others are trained by the
            outer loop and shared by all tasks.

    Example:
        >>> from alfa import LearnedInit
        >>> from torch import nn
        >>> list(LearnedInit(nn.Linear(3, 1)).layers)
        ['weight', 'bias']
    """

    def __init__(self, model: nn.Module, *, adapt: Patterns | None = None) -> None:
        super().__init__()
        self.model = model
        self._layers = select_layers(model, adapt)

    @property
    def layers(self) -> Layers:
        return self._layers

    def start(self, support: Support) -> Params:
        # theta_{i,0} = theta, the same for every task (Algorithm 1, line 5)
        theta = torch.cat([self.model.get_parameter(name).flatten() for name in self._layers])
        return Params(theta.expand(support.num_tasks, -1), self._layers)

    def shared(self) -> dict[str, Tensor]:
        return {n: p for n, p in self.model.named_parameters() if n not in self._layers}

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        return self.model.parameters()
