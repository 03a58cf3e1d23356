"""Conv4, four blocks of a convolution each."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from alfa.errors import ConfigError
from alfa.models._base import register_model
from alfa.models._convolutional import Convolutional, image_shape
from alfa.ops.stages import Flatten, Stage
from alfa.types import Count


@register_model("conv4")
class Conv4(Convolutional):
    """Blocks of 3 x 3 convolution, batch norm, leaky ReLU, and 2 x 2 max pool, and a linear layer.

    The 4-CONV backbone of the paper's supplement. Batch norm uses the statistics of the current
    batch; its gamma and beta are meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each convolution: one number, or one for each block, such as
            64, 96, 128, 256.
        num_blocks: number of blocks.
        num_pools: number of leading blocks that halve height and width, if not all of them.
        generator: source of the random weights.

    Examples:
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
        filters: Count | Sequence[Count] = 48,
        num_blocks: Count = 4,
        num_pools: Count | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        pools = num_blocks if num_pools is None else num_pools
        if not 1 <= pools <= num_blocks:
            raise ConfigError(
                f"`num_pools` must be from 1 to `num_blocks` ({num_blocks}), got {num_pools}."
            )
        name = f"a Conv4 with {pools} max pools"
        num_channels, height, width = image_shape(input_shape, min_size=2**pools, name=name)
        sizes = [filters] * num_blocks if isinstance(filters, int) else list(filters)
        if len(sizes) != num_blocks or min(sizes) < 1:
            raise ConfigError(
                f"`filters` must be a number of at least 1, or one for each of {num_blocks} "
                f"blocks, got {filters if isinstance(filters, int) else list(filters)}."
            )
        self.num_blocks, self.num_pools = num_blocks, pools
        stages: list[Stage] = []
        options: dict[str, Any] = {"slope": 0.01, "bias": True}
        for block, (fan_in, outputs) in enumerate(pairwise([num_channels, *sizes]), start=1):
            options["pool"] = 2 if block <= pools else 1
            stages += self.add_conv_norm(f"{block}", fan_in, outputs, 3, **options)
        feature_shape = sizes[-1], height >> pools, width >> pools
        self.build([*stages, Flatten()], feature_shape, num_outputs, generator)
