"""L2F: every task forgets a part of the initialization, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.inits._base import Init, Support, register_init
from alfa.ops import layer_means, spread, undrawn
from alfa.types import Layers, Params


@register_init("attenuated")
class Attenuated(Init):
    """theta_{i,0} = gamma_i * theta, with gamma per task and layer (Baik et al., 2020, L2F).

    A small network reads the layer-wise means of the support gradient at theta and gives a
    factor between 0 and 1 for every layer.

    Args:
        init: the initialization that is attenuated.
        generator: source of the network's random start.

    Example:
        >>> from alfa import Attenuated, LearnedInit
        >>> from torch import nn
        >>> init = Attenuated(LearnedInit(nn.Linear(3, 1)))
        >>> sum(p.numel() for p in init.attenuator.parameters())  # N = 2: twice 2 x 2 + 2
        12
    """

    def __init__(self, init: Init, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.init = init
        size = len(init.layers)
        first = undrawn(nn.Linear, size, size)
        second = undrawn(nn.Linear, size, size)
        for parameter in (*first.parameters(), *second.parameters()):
            nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=generator)
        self.needs_classes, self.any_way = init.needs_classes, init.any_way
        self.attenuator = nn.Sequential(first, nn.ReLU(), second, nn.Sigmoid())

    @property
    def layers(self) -> Layers:
        return self.init.layers

    def start(self, support: Support) -> Params:
        theta = self.init.start(support)
        gamma = self.attenuator(layer_means(support.gradients(theta)))
        return theta.like(spread(gamma, theta.layers) * theta.flat)

    def shared(self) -> dict[str, Tensor]:
        return self.init.shared()

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        yield from self.init.meta_parameters()
        yield from self.attenuator.parameters()
