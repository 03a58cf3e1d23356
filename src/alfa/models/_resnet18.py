"""The ResNet18 backbone, as Meta-Dataset has it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.models._base import register_model
from alfa.models._convolutional import Convolutional, image_shape
from alfa.ops import undrawn
from alfa.ops.stages import Chain, Conv, GlobalPool, Linear, MaxPool, Norm, Pool, Stage, Sum
from alfa.types import Count

_LEAST = 16


@register_model("resnet18")
class ResNet18(Convolutional):
    """A 7 x 7 convolution and max pooling, four groups of two residual blocks, a linear layer.

    A block is two 3 x 3 convolutions with batch norm, and ReLU between them and after the sum; the
    first of a group has a 1 x 1 convolution with batch norm as its shortcut, and from the second
    group on halves height and width (He et al., 2016, with a convolution in the first shortcut
    too, as in Triantafillou et al., 2020). No convolution has a bias. Batch norm uses the
    statistics of the batch at hand; its gamma and beta are meta-learned, not adapted by default.

    Args:
        input_shape: channels, height and width of an image.
        num_outputs: classes.
        filters: of the four groups; the first convolution has those of the first.
        generator: source of the random weights.

    Example:
        >>> import torch
        >>> from alfa.models import ResNet18
        >>> model = ResNet18((3, 32, 32), 5, filters=[8, 16, 32, 64])
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
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
        num_channels, height, width = image_shape(input_shape)
        if len(filters) != 4 or min(filters) < 1:
            raise ConfigError(f"`filters` is {list(filters)}, but must be four numbers, 1 or more.")
        if min(height, width) < _LEAST:
            raise ConfigError(
                f"images of {height} x {width} are too small for ResNet18, which needs "
                f"{_LEAST} x {_LEAST}; use larger images."
            )
        stem = self._conv(self, "", "1", num_channels, filters[0], side=7, stride=2, slope=0.0)
        stages: list[Stage] = [stem, MaxPool()]
        for group, (num_inputs, num_filters) in enumerate(pairwise((filters[0], *filters)), 1):
            stride = 1 if group == 1 else 2
            stages += self._block(f"block{group}a", num_inputs, num_filters, stride)
            stages += self._block(f"block{group}b", num_filters, num_filters, None)
        self.linear = undrawn(nn.Linear, filters[-1], num_outputs)
        self.num_outputs = num_outputs
        self.start(generator)
        self.network = Chain(*stages, GlobalPool(), Linear("linear"))

    def _block(
        self, name: str, num_inputs: int, num_outputs: int, stride: int | None
    ) -> list[Stage]:
        """Two convolutions beside a shortcut, which is a convolution where there is a stride."""
        block = nn.Module()
        self.add_module(name, block)
        shape = {"side": 3, "stride": stride or 1}
        main = Chain(
            self._conv(block, f"{name}.", "1", num_inputs, num_outputs, slope=0.0, **shape),
            self._conv(block, f"{name}.", "2", num_outputs, num_outputs, side=3, slope=1.0),
        )
        shortcut = Chain()  # passes its input on
        if stride is not None:
            shape = {"side": 1, "stride": stride}
            shortcut = self._conv(
                block, f"{name}.", "_shortcut", num_inputs, num_outputs, slope=1.0, **shape
            )
        return [Sum(main, shortcut), Pool(size=1)]

    @staticmethod
    def _conv(
        module: nn.Module,
        prefix: str,
        part: str,
        num_inputs: int,
        num_outputs: int,
        *,
        side: int,
        slope: float,
        stride: int = 1,
    ) -> Chain:
        """A convolution and its batch norm, added to a module."""
        options = {"stride": stride, "padding": side // 2, "bias": False}
        conv = undrawn(nn.Conv2d, num_inputs, num_outputs, side, **options)
        module.add_module(f"conv{part}", conv)
        module.add_module(f"norm{part}", nn.BatchNorm2d(num_outputs, track_running_stats=False))
        return Chain(
            Conv(f"{prefix}conv{part}", stride=stride),
            Norm(f"{prefix}norm{part}", size=1, slope=slope),
        )
