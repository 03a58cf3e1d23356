"""Networks of inverted residuals, the blocks of MobileNetV2 and EfficientNet-Lite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NUM_FEATURES = 1280
"""The number of features of all these networks, whatever their width."""

_NUM_STEM_CHANNELS = 32

Padding = Callable[[int, int, int], tuple[int, int]]
"""Maps the side of an input, a kernel's side, and a stride to the padding before and after."""

Names = Iterable[tuple[str, str]]
"""The names of every convolution and its batch norm in a state dict, in order of execution."""


@dataclass(frozen=True)
class Stage:
    """Blocks with the same number of channels; only the first of them has the stride."""

    num_blocks: int
    num_channels: int
    kernel_size: int
    stride: int
    expansion: int


def tensorflow_padding(side: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Return the padding that TensorFlow calls ``SAME``: ``ceil(side / stride)`` outputs.

    Examples:
        >>> tensorflow_padding(224, 3, 2), tensorflow_padding(15, 5, 2), tensorflow_padding(7, 5, 1)
        ((0, 1), (2, 2), (2, 2))
    """
    num_outputs = -(-side // stride)
    total = max((num_outputs - 1) * stride + kernel_size - side, 0)
    return total // 2, total - total // 2


def symmetric_padding(side: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Return half of the kernel's side, for both ends, as in torchvision."""
    return kernel_size // 2, kernel_size // 2


class InvertedResiduals(nn.Module):
    """A stem, blocks of inverted residuals, a last convolution, and global average pooling.

    The network has no batch norm; `load` computes the convolutions from a state dict with batch
    norm.

    Args:
        stages: the blocks.
        size: the side of the images, which determines the padding.
        padding: the padding of a convolution.
        middle: the numbers of the blocks whose averaged outputs follow the features.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        size: int,
        padding: Padding,
        middle: Sequence[int] = (),
    ) -> None:
        super().__init__()
        num_channels = _NUM_STEM_CHANNELS
        stem = _conv(3, num_channels, 3, stride=2, pads=padding(size, 3, 2))
        side = -(-size // 2)
        blocks = []
        for stage in stages:
            for stride in (stage.stride, *(1,) * (stage.num_blocks - 1)):
                pads = padding(side, stage.kernel_size, stride)
                blocks.append(Block(num_channels, stage, stride=stride, pads=pads))
                num_channels, side = stage.num_channels, -(-side // stride)
        self.size, self.middle = size, tuple(middle)
        self.stem = nn.Sequential(stem, nn.ReLU6(inplace=True))
        self.blocks = nn.Sequential(*blocks)
        last = _conv(num_channels, NUM_FEATURES, 1)
        self.head = nn.Sequential(last, nn.ReLU6(inplace=True))
        # CPUs convolve faster in this memory format.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.stem(x.contiguous(memory_format=torch.channels_last))
        middle = []
        for number, block in enumerate(self.blocks):
            maps = block(maps)
            if number in self.middle:
                middle.append(maps)
        return torch.cat([z.mean((2, 3)) for z in (self.head(maps), *middle)], dim=1)

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the network in order of execution."""
        yield Part(self.stem)
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            yield Part(block.layers, block.is_residual, number in self.middle)
        yield Part(self.head)

    def convolutions(self) -> Iterator[nn.Conv2d]:
        """Yield all convolutions in order of execution."""
        return (module for module in self.modules() if isinstance(module, nn.Conv2d))

    def load(self, state: Mapping[str, Tensor], names: Names, *, eps: float) -> Self:
        """Load convolutions, each with the batch norm that follows it, from a state dict.

        Args:
            state: tensors by name; other tensors, such as the classifier, are ignored.
            names: the names of each convolution and its batch norm.
            eps: the constant that batch norm adds to variances.
        """
        for conv, (name, norm) in zip(self.convolutions(), names, strict=True):
            # In float64, so that folding does not add rounding errors.
            weight, mean, variance, gain, shift = (
                state[key].double()
                for key in (
                    *(f"{name}.weight", f"{norm}.running_mean", f"{norm}.running_var"),
                    *(f"{norm}.weight", f"{norm}.bias"),
                )
            )
            scale = gain / (variance + eps).sqrt()
            rest = conv.kernel_size[0] - weight.shape[-1]
            conv.weight.copy_(F.pad(weight * scale.view(-1, 1, 1, 1), (rest, 0, rest, 0)))
            assert conv.bias is not None
            conv.bias.copy_(shift - mean * scale)
        return self


class Part(NamedTuple):
    """Layers, and whether their inputs are added to their outputs, which may be features."""

    layers: nn.Sequential
    is_residual: bool = False
    is_middle: bool = False


class Block(nn.Module):
    """An inverted residual: expansion, depthwise convolution, and projection."""

    def __init__(
        self, num_inputs: int, stage: Stage, *, stride: int, pads: tuple[int, int]
    ) -> None:
        super().__init__()
        width = num_inputs * stage.expansion
        layers: list[nn.Module] = []
        if stage.expansion != 1:
            layers += [_conv(num_inputs, width, 1), nn.ReLU6(inplace=True)]
        depthwise = _conv(width, width, stage.kernel_size, stride=stride, groups=width, pads=pads)
        layers += [depthwise, nn.ReLU6(inplace=True), _conv(width, stage.num_channels, 1)]
        self.layers = nn.Sequential(*layers)
        self.is_residual = stride == 1 and num_inputs == stage.num_channels

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.is_residual else y


def _conv(
    num_inputs: int,
    num_outputs: int,
    kernel_size: int,
    *,
    stride: int = 1,
    groups: int = 1,
    pads: tuple[int, int] = (0, 0),
) -> nn.Conv2d:
    before, after = pads
    # `nn.Conv2d` pads both ends equally. For one more pixel at the end, the kernel starts with
    # zeros, which is faster than a layer that pads.
    enlarged = kernel_size + after - before
    return _Conv2d(num_inputs, num_outputs, enlarged, stride, after, groups=groups)


class _Conv2d(nn.Conv2d):
    """A convolution whose weights `InvertedResiduals.load` sets."""

    def reset_parameters(self) -> None:
        """Leave the weights uninitialized: random ones would change torch's global generator."""
