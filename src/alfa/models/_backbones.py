"""The convolutional backbones: Conv4, ResNet12, and ResNet18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.models._base import ExecutionMode, register_model
from alfa.models._convolutional import Convolutional
from alfa.ops import Plan
from alfa.ops.stages import Chain, Flatten, GlobalPool, MaxPool, Pool, Split, Stage, Sum
from alfa.types import Count


@register_model("conv4")
class Conv4(Convolutional):
    """Blocks of 3 x 3 convolution, batch norm, leaky ReLU, and 2 x 2 max pool, and a linear layer.

    The 4-CONV backbone of the paper's supplement. Batch norm uses the statistics of the current
    batch; its gamma and beta are meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each convolution.
        num_blocks: number of blocks; each halves height and width.
        generator: source of the random weights.

    Example:
        >>> import torch
        >>> from alfa import Conv4
        >>> model = Conv4((3, 32, 32), 5)
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Count = 48,
        num_blocks: Count = 4,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        name = f"a Conv4 of {num_blocks} blocks"
        num_channels, height, width = _image_shape(input_shape, min_size=2**num_blocks, name=name)
        self.num_blocks = num_blocks
        stages: list[Stage] = []
        for block in range(1, num_blocks + 1):
            fan_in = num_channels if block == 1 else filters
            stages += self.add_conv(f"{block}", fan_in, filters, 3, slope=0.01, pool=2, bias=True)
        features = filters * (height >> num_blocks) * (width >> num_blocks)
        self.build([*stages, Flatten()], features, num_outputs, generator)


class _Residual(Convolutional):
    """A backbone of residual blocks."""

    def add_block(
        self,
        name: str,
        num_inputs: int,
        num_outputs: int,
        num_convs: int,
        *,
        stride: int = 1,
        has_conv_shortcut: bool = True,
        num_parts: int = 1,
    ) -> Stage:
        """Add 3 x 3 convolutions and a shortcut, and return their sum, without its ReLU."""
        self.add_module(name, nn.Module())

        def conv(part: str, fan_in: int, side: int, slope: float, stride: int) -> Chain:
            path = f"{name}.{part}"
            conv, norm = self.add_conv(path, fan_in, num_outputs, side, slope=slope, stride=stride)
            return Chain(conv, Split(norm, num_parts) if num_parts > 1 else norm)

        main = [conv("1", num_inputs, 3, 0.0, stride)]
        for number in range(2, num_convs + 1):
            slope = 1.0 if number == num_convs else 0.0
            main.append(conv(f"{number}", num_outputs, 3, slope, 1))
        # An empty chain returns its input.
        shortcut = conv("_shortcut", num_inputs, 1, 1.0, stride) if has_conv_shortcut else Chain()
        return Sum(Chain(*main), shortcut)


@register_model("resnet12")
class ResNet12(_Residual):
    """Four residual blocks of three 3 x 3 convolutions, the mean over the image, a linear layer.

    Convolutions have no bias. Batch norm follows every convolution, and ReLU the first two of a
    block. The shortcut is a 1 x 1 convolution with batch norm; ReLU and 2 x 2 max pooling follow
    the sum. Batch norm uses the statistics of the current batch; its gamma and beta are
    meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each of the four blocks.
        pooling: ``"four"`` pools after all blocks, as in the paper; ``"three"`` pools after the
            first three, with a padding of 1 in the third, as in the published code.
        device_parts: number of parts of consecutive images that batch norm normalizes separately,
            as the published code does on several devices; only for the supplement's Table A.
        generator: source of the random weights.

    Example:
        >>> import torch
        >>> from alfa import ResNet12
        >>> model = ResNet12((3, 32, 32), 5, filters=[8, 16, 32, 64])
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"pooling": "four"},
        "paper": {"pooling": "four"},
        "published-code": {"pooling": "three"},
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Sequence[Count] = (64, 128, 256, 512),
        pooling: Literal["four", "three"] = "four",
        device_parts: Count = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("four", "three"))
        min_size = 16 if pooling == "four" else 4
        num_channels, _, _ = _image_shape(input_shape, min_size=min_size, name="this ResNet12")
        _check_filters(filters)
        self.device_parts = device_parts
        stages: list[Stage] = []
        for number, outputs in enumerate(filters, start=1):
            block = f"block{number}"
            stages.append(self.add_block(block, num_channels, outputs, 3, num_parts=device_parts))
            padding = 1 if number == 3 and pooling == "three" else 0
            size = 1 if number == 4 and pooling == "three" else 2
            stages.append(Pool(size=size, padding=padding))
            num_channels = outputs
        self.build([*stages, GlobalPool()], num_channels, num_outputs, generator)

    def plan(self, x: Tensor, mode: ExecutionMode) -> Plan:
        if self.device_parts > 1 and mode.num_norm_examples is not None:
            raise ConfigError(
                "`device_parts` splits the images that are normalized together, but batch norm "
                "'inductive' normalizes by the whole support set; leave one of them out."
            )
        return super().plan(x, mode)


@register_model("resnet18")
class ResNet18(_Residual):
    """A 7 x 7 convolution and max pooling, four groups of two residual blocks, a linear layer.

    The backbone of Meta-Dataset. A block is two 3 x 3 convolutions with batch norm, and ReLU
    between them and after the sum. The first block of each group has a 1 x 1 convolution with batch
    norm as its shortcut, and in the last three groups it halves height and width (He et al., 2016,
    but with a convolution in the first shortcut, too, as in Triantafillou et al., 2020).
    Convolutions have no bias. Batch norm uses the statistics of the current batch; its gamma and
    beta are meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each of the four groups; the first convolution has the first
            group's.
        generator: source of the random weights.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Sequence[Count] = (64, 128, 256, 512),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_channels, _, _ = _image_shape(input_shape, min_size=16, name="ResNet18")
        _check_filters(filters)
        stem = self.add_conv("1", num_channels, filters[0], 7, stride=2)
        stages: list[Stage] = [Chain(*stem), MaxPool()]
        for group, (fan_in, outputs) in enumerate(pairwise((filters[0], *filters)), start=1):
            stride = 1 if group == 1 else 2
            stages += [
                self.add_block(f"block{group}a", fan_in, outputs, 2, stride=stride),
                Pool(size=1),
            ]
            second = self.add_block(f"block{group}b", outputs, outputs, 2, has_conv_shortcut=False)
            stages += [second, Pool(size=1)]
        self.build([*stages, GlobalPool()], filters[-1], num_outputs, generator)


def _image_shape(input_shape: Sequence[int], *, min_size: int, name: str) -> tuple[int, int, int]:
    """Return channels, height, and width, or raise ConfigError if the images are too small."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"the shape of one input is {list(input_shape)}, but this model takes images: "
            "channels, height, and width; use the model 'mlp' for vectors."
        )
    num_channels, height, width = input_shape
    if min(height, width) < min_size:
        raise ConfigError(
            f"images of {height} x {width} are too small for {name}, which needs "
            f"{min_size} x {min_size}; use larger images."
        )
    return num_channels, height, width


def _check_filters(filters: Sequence[int]) -> None:
    if len(filters) != 4 or min(filters) < 1:
        raise ConfigError(f"`filters` must be four numbers of at least 1, got {list(filters)}.")
