"""Faster networks of inverted residuals on CPUs, with weights in the memory layout of oneDNN.

A convolution in torch converts its weights to this layout at every call, which takes a third of the
time for a single image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from alfa.backbones._inverted_residuals import InvertedResiduals


def prepacked(network: InvertedResiduals) -> Callable[[Tensor], Tensor] | None:
    """Return a function with the same outputs up to rounding, on a copy of the weights.

    The function has no gradients. Return None if this build of torch does not support it.
    """
    if not torch.backends.mkldnn.is_available():
        return None
    side, generator = network.size, torch.Generator().manual_seed(0)
    image = torch.randn(1, 3, side, side, generator=generator)
    # Only torch's own compiler uses these operations, and other builds may lack or change them.
    try:
        function = _Prepacked(network)
        found = function(image)
    except (AttributeError, RuntimeError):
        return None
    return function if torch.allclose(found, network(image), rtol=1e-3, atol=1e-3) else None


class _Prepacked:
    """The network as a list of convolutions, each with its activation."""

    def __init__(self, network: InvertedResiduals) -> None:
        self._network = network
        self._parts: list[tuple[list[_Convolution], bool, bool]] = []
        side = network.size
        for layers, is_residual, is_middle in network.parts():
            convolutions = []
            for layer, after in pairwise([*layers, nn.Identity()]):
                if isinstance(layer, nn.Conv2d):
                    convolutions.append(_Convolution.of(layer, after, side))
                    side = -(-side // layer.stride[0])
            self._parts.append((convolutions, is_residual, is_middle))

    def __call__(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        middle = []
        for convolutions, is_residual, is_middle in self._parts:
            y = x
            for convolution in convolutions:
                y = convolution(y)
            x = x + y if is_residual else y
            if is_middle:
                middle.append(x)
        return torch.cat([z.mean((2, 3)) for z in (x, *middle)], dim=1)

    def __reduce__(self) -> tuple[object, ...]:
        # Tensors in this layout cannot be copied or pickled.
        return prepacked, (self._network,)


@dataclass(frozen=True, eq=False)
class _Convolution:
    """A convolution and its activation, with weights in the layout of oneDNN."""

    weight: Tensor
    bias: Tensor
    # Padding, stride, dilation, groups, and the name, the bounds, and the algorithm of the
    # activation.
    options: tuple[object, ...]

    @classmethod
    def of(cls, conv: nn.Conv2d, after: nn.Module, side: int) -> _Convolution:
        """Convert a convolution of images of side `side` and the layer after it."""
        assert conv.bias is not None
        assert isinstance(conv.padding, tuple)
        form = ([*conv.padding], [*conv.stride], [*conv.dilation], conv.groups)
        pack = torch.ops.mkldnn._reorder_convolution_weight
        weight = pack(conv.weight.detach(), *form, [1, conv.in_channels, side, side])
        is_clipped = isinstance(after, nn.ReLU6)
        activation = ("hardtanh", [0.0, 6.0], "") if is_clipped else ("none", [], "")
        return cls(weight, conv.bias.detach(), (*form, *activation))

    def __call__(self, x: Tensor) -> Tensor:
        convolve = torch.ops.mkldnn._convolution_pointwise
        y: Tensor = convolve(x, self.weight, self.bias, *self.options)
        return y
