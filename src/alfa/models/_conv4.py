"""The 4-CONV backbone of the paper's supplement."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from alfa.models._base import register_model
from alfa.models._convolutional import Convolutional, image_shape
from alfa.ops import uninitialized
from alfa.ops.stages import Conv, Flatten, Norm, Stage
from alfa.types import Count


@register_model("conv4")
class Conv4(Convolutional):
    """Blocks of 3 x 3 convolution, batch norm, leaky ReLU and 2 x 2 max pool, then a linear layer.

    Batch norm uses the statistics of the batch at hand; its gamma and beta are meta-learned, not
    adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: classes.
        filters: of every convolution.
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
        num_channels, height, width = image_shape(
            input_shape,
            min_size=2**num_blocks,
            name=f"a Conv4 of {num_blocks} blocks",
            fix="use larger images or fewer blocks",
        )
        self.num_blocks = num_blocks
        stages: list[Stage] = []
        for block in range(1, num_blocks + 1):
            fan_in = num_channels if block == 1 else filters
            conv = uninitialized(nn.Conv2d, fan_in, filters, 3, padding=1)
            self.add_module(f"conv{block}", conv)
            self.add_module(f"norm{block}", nn.BatchNorm2d(filters, track_running_stats=False))
            # A bias before batch norm has no effect, so the stage has none.
            stages += [Conv(f"conv{block}"), Norm(f"norm{block}")]
        features = filters * (height >> num_blocks) * (width >> num_blocks)
        self.build([*stages, Flatten()], features, num_outputs, generator)
