"""The ResNet12 backbone of the paper's supplement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.models._base import ExecutionMode, register_model
from alfa.models._convolutional import (
    Convolutional,
    add_conv_norm,
    check_filters,
    image_shape,
)
from alfa.ops import Plan
from alfa.ops.stages import Chain, GlobalPool, Pool, Split, Stage, Sum
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
        input_shape: channels, height, and width of an image.
        num_outputs: classes.
        filters: of the four blocks.
        pooling: after all ``"four"`` blocks, as in the paper, or, as in the published code, after
            the first ``"three"``, in the third with a padding of 1.
        device_parts: number of parts of consecutive images that are normalized separately, as the
            published code does on several devices; only for the supplement's Table A.
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
        pooling: Pooling = "four",
        device_parts: Count = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("four", "three"))
        min_size = 16 if pooling == "four" else 4
        num_channels, _, _ = image_shape(input_shape, min_size=min_size, name="this ResNet12")
        check_filters(filters)
        self.device_parts = device_parts
        stages: list[Stage] = []
        for number, outputs in enumerate(filters, start=1):
            stages.append(self._block(f"block{number}", num_channels, outputs))
            padding = 1 if number == 3 and pooling == "three" else 0
            size = 1 if number == 4 and pooling == "three" else 2
            stages.append(Pool(size=size, padding=padding))
            num_channels = outputs
        self.build([*stages, GlobalPool()], num_channels, num_outputs, generator)

    def _block(self, name: str, num_inputs: int, num_outputs: int) -> Stage:
        """Three convolutions plus the shortcut, without the ReLU after their sum."""
        block = nn.Module()

        def conv(part: str, fan_in: int, side: int, slope: float) -> Chain:
            conv, norm = add_conv_norm(block, name, part, fan_in, num_outputs, side, slope=slope)
            return Chain(conv, Split(norm, self.device_parts) if self.device_parts > 1 else norm)

        main = Chain(
            conv("1", num_inputs, 3, 0.0),
            conv("2", num_outputs, 3, 0.0),
            conv("3", num_outputs, 3, 1.0),
        )
        shortcut = conv("_shortcut", num_inputs, 1, 1.0)
        self.add_module(name, block)
        return Sum(main, shortcut)

    def plan(self, x: Tensor, mode: ExecutionMode) -> Plan:
        if self.device_parts > 1 and mode.num_norm_examples is not None:
            raise ConfigError(
                "`device_parts` splits the images that are normalized together, but with batch "
                "norm 'inductive' those of the support set must stay together; leave one out."
            )
        return super().plan(x, mode)
