"""The residual backbones: ResNet12 and ResNet18."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.models._base import ExecutionMode, register_model
from alfa.models._convolutional import (
    Convolutional,
    Probability,
    Slope,
    check_dropout,
    check_slope,
    image_shape,
)
from alfa.ops import Plan
from alfa.ops.stages import Chain, Flatten, GlobalPool, MaxPool, Pool, Split, Stage, Sum
from alfa.types import Count


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
        slope: float = 0.0,
        has_conv_shortcut: bool = True,
        num_parts: int = 1,
    ) -> Stage:
        """Add 3 x 3 convolutions and a shortcut, and return their sum, without its activation.

        `slope` is the slope of the leaky ReLU between the convolutions.
        """
        self.add_module(name, nn.Module())

        def conv(part: str, fan_in: int, side: int, slope: float, stride: int) -> Chain:
            path = f"{name}.{part}"
            conv, norm = self.add_conv_norm(
                path, fan_in, num_outputs, side, slope=slope, stride=stride
            )
            return Chain(conv, Split(norm, num_parts) if num_parts > 1 else norm)

        main = [conv("1", num_inputs, 3, slope, stride)]
        for number in range(2, num_convs + 1):
            # A slope of 1 means no activation.
            own_slope = 1.0 if number == num_convs else slope
            main.append(conv(f"{number}", num_outputs, 3, own_slope, 1))
        # An empty chain returns its input.
        shortcut = conv("_shortcut", num_inputs, 1, 1.0, stride) if has_conv_shortcut else Chain()
        return Sum(Chain(*main), shortcut)


class _ResNet12(_Residual):
    """Four residual blocks of three 3 x 3 convolutions each."""

    def build_blocks(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        filters: Sequence[int],
        generator: torch.Generator | None,
        *,
        three: bool = False,
        slope: float = 0.0,
        average: bool = True,
        dropout: float = 0.0,
        block_size: int = 1,
        num_parts: int = 1,
    ) -> None:
        """Add all layers; `three` pools after three blocks, with a padding of 1 in the third."""
        min_size = 4 if three else 16
        num_channels, *size = image_shape(input_shape, min_size=min_size, name="this ResNet12")
        _check_filters(filters)
        stages: list[Stage] = []
        options: dict[str, Any] = {"slope": slope, "num_parts": num_parts}
        for number, outputs in enumerate(filters, start=1):
            stages.append(self.add_block(f"block{number}", num_channels, outputs, 3, **options))
            padding = 1 if number == 3 and three else 0
            window = 1 if number == 4 and three else 2
            stages.append(Pool(size=window, padding=padding, slope=slope))
            square = block_size if number > 2 else 1
            stages += self.add_dropout(f"{number}", dropout, block_size=square)
            size = [(side + 2 * padding) // window for side in size]
            num_channels = outputs
        shape = [num_channels] if average else [num_channels, *size]
        end = GlobalPool() if average else Flatten()
        self.build([*stages, end], shape, num_outputs, generator)


@register_model("resnet12")
class ResNet12(_ResNet12):
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

    Examples:
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
        self.device_parts = device_parts
        options: dict[str, Any] = {"three": pooling == "three", "num_parts": device_parts}
        self.build_blocks(input_shape, num_outputs, filters, generator, **options)

    def plan(self, x: Tensor, mode: ExecutionMode) -> Plan:
        if self.device_parts > 1 and mode.num_norm_examples is not None:
            raise ConfigError(
                "`device_parts` splits the images that are normalized together, but batch norm "
                "'inductive' normalizes by the whole support set; leave one of them out."
            )
        return super().plan(x, mode)


@register_model("resnet12-wide")
class WideResNet12(_ResNet12):
    """The ResNet12 of MetaOptNet (Lee et al., 2019).

    It differs from `ResNet12` in its number of filters, in leaky ReLU, in features from all places
    instead of their mean, and in dropout after every block. In the last two blocks, dropout drops
    squares (DropBlock, Ghiasi et al., 2018); squares of 2 x 2 fit the small maps of CIFAR's images.
    MetaOptNet increases the dropout from 0 within the first 20 epochs; here it is constant.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each of the four blocks.
        slope: the slope of the leaky ReLU for negative values; 0 means ReLU.
        average: whether the features are the mean over the image; if not, they are all values.
        dropout: probability of dropout after every block, in training only.
        block_size: side of the squares that dropout drops in the last two blocks; 1 drops single
            values.
        generator: source of the random weights.

    Examples:
        >>> from alfa.models import WideResNet12
        >>> WideResNet12((3, 84, 84), 5).feature_shape
        (640, 5, 5)
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Sequence[Count] = (64, 160, 320, 640),
        slope: Slope = 0.1,
        average: bool = False,
        dropout: Probability = 0.1,
        block_size: Count = 5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_slope(slope)
        check_dropout(dropout)
        if block_size < 1:
            raise ConfigError(f"`block_size` must be at least 1, got {block_size}.")
        options: dict[str, Any] = {"slope": slope, "average": average, "dropout": dropout}
        options["block_size"] = block_size
        self.build_blocks(input_shape, num_outputs, filters, generator, **options)


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
        num_channels, _, _ = image_shape(input_shape, min_size=16, name="ResNet18")
        _check_filters(filters)
        stem = self.add_conv_norm("1", num_channels, filters[0], 7, stride=2)
        stages: list[Stage] = [Chain(*stem), MaxPool()]
        for group, (fan_in, outputs) in enumerate(pairwise((filters[0], *filters)), start=1):
            stride = 1 if group == 1 else 2
            stages += [
                self.add_block(f"block{group}a", fan_in, outputs, 2, stride=stride),
                Pool(size=1),
            ]
            second = self.add_block(f"block{group}b", outputs, outputs, 2, has_conv_shortcut=False)
            stages += [second, Pool(size=1)]
        self.build([*stages, GlobalPool()], [filters[-1]], num_outputs, generator)


def _check_filters(filters: Sequence[int]) -> None:
    if len(filters) != 4 or min(filters) < 1:
        raise ConfigError(f"`filters` must be four numbers of at least 1, got {list(filters)}.")
