"""The ResNet18 backbone of Meta-Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from alfa.models._base import register_model
from alfa.models._convolutional import (
    Convolutional,
    add_conv_norm,
    check_filters,
    image_shape,
)
from alfa.ops.stages import Chain, GlobalPool, MaxPool, Pool, Stage, Sum
from alfa.types import Count


@register_model("resnet18")
class ResNet18(Convolutional):
    """A 7 x 7 convolution and max pooling, four groups of two residual blocks, a linear layer.

    A block is two 3 x 3 convolutions with batch norm, and ReLU between them and after the sum; the
    first of a group has a 1 x 1 convolution with batch norm as its shortcut, and from the second
    group on halves height and width (He et al., 2016, with a convolution in the first shortcut
    too, as in Triantafillou et al., 2020). No convolution has a bias. Batch norm uses the
    statistics of the batch at hand; its gamma and beta are meta-learned, not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: classes.
        filters: of the four groups; the first convolution has as many as the first group.
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
        num_channels, _, _ = image_shape(input_shape, min_size=16, name="ResNet18")
        check_filters(filters)
        stem = add_conv_norm(self, "", "1", num_channels, filters[0], 7, stride=2, slope=0.0)
        stages: list[Stage] = [Chain(*stem), MaxPool()]
        for group, (num_inputs, num_filters) in enumerate(pairwise((filters[0], *filters)), 1):
            stride = 1 if group == 1 else 2
            stages += self._block(f"block{group}a", num_inputs, num_filters, stride)
            stages += self._block(f"block{group}b", num_filters, num_filters, None)
        self.build([*stages, GlobalPool()], filters[-1], num_outputs, generator)

    def _block(
        self, name: str, num_inputs: int, num_outputs: int, stride: int | None
    ) -> list[Stage]:
        """Two convolutions plus a shortcut, which is a convolution if there is a stride."""
        block = nn.Module()
        self.add_module(name, block)

        def conv(part: str, fan_in: int, side: int, slope: float, stride: int = 1) -> Chain:
            sizes = fan_in, num_outputs, side
            return Chain(*add_conv_norm(block, name, part, *sizes, slope=slope, stride=stride))

        main = Chain(conv("1", num_inputs, 3, 0.0, stride or 1), conv("2", num_outputs, 3, 1.0))
        # An empty chain returns its input.
        shortcut = Chain() if stride is None else conv("_shortcut", num_inputs, 1, 1.0, stride)
        return [Sum(main, shortcut), Pool(size=1)]
