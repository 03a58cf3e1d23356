"""The ResNet12 backbone of the paper's supplement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.models._base import How, register_model
from alfa.models._convolutional import Convolutional, image_shape
from alfa.ops import Plan, undrawn
from alfa.ops.stages import Chain, Conv, GlobalPool, Linear, Norm, Pool, Split, Stage, Sum
from alfa.types import Count

Pooling = Literal["four", "three"]


@register_model("resnet12")
class ResNet12(Convolutional):
    """Four residual blocks of three 3 x 3 convolutions, the mean over the image, a linear layer.

    Convolutions have no bias, every one is followed by batch norm, the first two of a block also
    by ReLU; the shortcut is a 1 x 1 convolution with batch norm. Both are added, then comes ReLU
    and 2 x 2 max pooling. Batch norm uses the statistics of the batch at hand; its gamma and beta
    are meta-learned, not adapted by default.

    Args:
        input_shape: channels, height and width of an image.
        num_outputs: classes.
        filters: of the four blocks.
        pooling: after all ``"four"`` blocks, as the paper says, or, as in the published code,
            after the first ``"three"``, in the third with a padding of 1.
        device_parts: into how many parts of consecutive images a set is split for batch norm, as
            the published code does on several devices; for the supplement's Table A alone.
        generator: source of the random weights.

    Example:
        >>> import torch
        >>> from alfa import ResNet12
        >>> model = ResNet12((3, 32, 32), 5, filters=[8, 16, 32, 64])
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Sequence[Count] = (64, 128, 256, 512),
        pooling: Pooling = "four",
        device_parts: Count = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_channels, height, width = image_shape(input_shape)
        check_choice("pooling", pooling, ("four", "three"))
        if len(filters) != 4 or min(filters) < 1:
            raise ConfigError(f"`filters` is {list(filters)}, but must be four numbers, 1 or more.")
        least = 16 if pooling == "four" else 4
        if min(height, width) < least:
            raise ConfigError(
                f"images of {height} x {width} are too small for this ResNet12, which needs "
                f"{least} x {least}; use larger images."
            )
        self.device_parts = device_parts
        stages: list[Stage] = []
        for number, outputs in enumerate(filters, start=1):
            stages += [self._block(f"block{number}", num_channels, outputs)]
            if number < 4 or pooling == "four":
                padding = 1 if number == 3 and pooling == "three" else 0
                stages.append(Pool(padding=padding))
            else:
                stages.append(Pool(size=1))
            num_channels = outputs
        self.linear = undrawn(nn.Linear, num_channels, num_outputs)
        self.num_outputs = num_outputs
        self.start(generator)
        self.network = Chain(*stages, GlobalPool(), Linear("linear"))

    def _block(self, name: str, num_inputs: int, num_outputs: int) -> Stage:
        """Three convolutions beside the shortcut; what follows their sum is not part of it."""
        block = nn.Module()

        def conv(part: str, fan_in: int, side: int, slope: float) -> Chain:
            block.add_module(
                f"conv{part}",
                undrawn(nn.Conv2d, fan_in, num_outputs, side, padding=side // 2, bias=False),
            )
            norm = nn.BatchNorm2d(num_outputs, track_running_stats=False)
            block.add_module(f"norm{part}", norm)
            normed: Stage = Norm(f"{name}.norm{part}", size=1, slope=slope)
            if self.device_parts > 1:
                normed = Split(normed, self.device_parts)
            return Chain(Conv(f"{name}.conv{part}"), normed)

        main = Chain(
            conv("1", num_inputs, 3, 0.0),
            conv("2", num_outputs, 3, 0.0),
            conv("3", num_outputs, 3, 1.0),
        )
        shortcut = conv("_shortcut", num_inputs, 1, 1.0)
        self.add_module(name, block)
        return Sum(main, shortcut)

    def plan(self, x: Tensor, how: How) -> Plan:
        if self.device_parts > 1 and how.own is not None:
            raise ConfigError(
                "`device_parts` splits the images that are normalised together, but with batch "
                "norm 'inductive' those of the support set must stay together; leave one out."
            )
        return super().plan(x, how)
