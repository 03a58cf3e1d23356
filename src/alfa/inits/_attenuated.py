"""L2F: every task attenuates the initialization, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.inits._base import Init, Support, register_init
from alfa.ops import expand_to_parameters, layer_means, uninitialized
from alfa.types import Layers, Params


@register_init("attenuated")
class Attenuated(Init):
    """theta_{i,0} = gamma_i * theta, with gamma per task and layer (Baik et al., 2020, L2F).

    A small network maps the layer-wise means of the support gradient at theta to a factor between
    0 and 1 for every layer.

    Args:
        init: the initialization to attenuate.
        generator: source of the network's random weights.

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
        first = uninitialized(nn.Linear, size, size)
        second = uninitialized(nn.Linear, size, size)
        for parameter in (*first.parameters(), *second.parameters()):
            nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=generator)
        self.classification_only, self.variable_way = init.classification_only, init.variable_way
        self.attenuator = nn.Sequential(first, nn.ReLU(), second, nn.Sigmoid())

    @property
    def layers(self) -> Layers:
        return self.init.layers

    def start(self, support: Support) -> Params:
        theta = self.init.start(support)
        gamma = self.attenuator(layer_means(support.gradients(theta)))
        return theta.like(expand_to_parameters(gamma, theta.layers) * theta.flat)

    def shared(self) -> dict[str, Tensor]:
        return self.init.shared()

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        yield from self.init.meta_parameters()
        yield from self.attenuator.parameters()
