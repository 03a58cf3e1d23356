"""Wide ResNets, residual networks that normalize before every convolution."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.models._base import register_model
from alfa.models._convolutional import Convolutional, Probability, check_dropout, image_shape
from alfa.ops.stages import Chain, GlobalPool, Stage, Sum
from alfa.types import Count


@register_model("wrn-28-10")
class WideResNet(Convolutional):
    """Three groups of wide pre-activation blocks, the mean over the image, a linear layer.

    The Wide ResNet of Zagoruyko and Komodakis (2016), by default with depth 28 and width 10. A
    3 x 3 convolution with 16 filters is followed by groups of (depth - 4) / 6 blocks with 16, 32,
    and 64 times `width` filters, and batch norm and ReLU. A block has batch norm, ReLU, and a 3 x 3
    convolution twice. Its shortcut is the identity, or, in the first block of a group, a 1 x 1
    convolution of the normalized input. The last two groups halve height and width. Convolutions
    have no bias, and their weights are normal with the variance 2 / (9 filters) for 3 x 3 (He et
    al., 2015). Batch norm uses the statistics of the current batch; its gamma and beta are
    meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        depth: number of layers, 6 n + 4.
        width: factor on the number of filters.
        dropout: probability of dropout between the convolutions of a block, in training only.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa.models import WideResNet
        >>> model = WideResNet((3, 32, 32), 5, depth=10, width=1)
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        depth: Count = 28,
        width: Count = 10,
        dropout: Probability = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_channels, _, _ = image_shape(input_shape, min_size=4, name="this Wide ResNet")
        if depth < 10 or (depth - 4) % 6:
            raise ConfigError(f"`depth` must be 10, 16, 22, 28, or larger by 6, got {depth}.")
        if width < 1:
            raise ConfigError(f"`width` must be at least 1, got {width}.")
        check_dropout(dropout)
        self.width, self.dropout = width, dropout
        stages: list[Stage] = [self.add_conv("1", num_channels, 16, 3)]
        fan_in = 16
        for group, filters in enumerate((16 * width, 32 * width, 64 * width), start=1):
            for block in range(1, (depth - 4) // 6 + 1):
                stride = 2 if group > 1 and block == 1 else 1
                name = f"group{group}_block{block}"
                stages.append(self._add_block(name, fan_in, filters, stride))
                fan_in = filters
        stages += [self.add_norm("_last", fan_in, slope=0.0), GlobalPool()]
        he_normal = partial(nn.init.kaiming_normal_, mode="fan_out")
        self.build(stages, [fan_in], num_outputs, generator, draw=he_normal)

    def _add_block(self, name: str, num_inputs: int, num_outputs: int, stride: int) -> Stage:
        self.add_module(name, nn.Module())
        first_norm = self.add_norm(f"{name}.1", num_inputs, slope=0.0)
        convs = Chain(
            self.add_conv(f"{name}.1", num_inputs, num_outputs, 3, stride=stride),
            self.add_norm(f"{name}.2", num_outputs, slope=0.0),
            *self.add_dropout(f"{name}.", self.dropout),
            self.add_conv(f"{name}.2", num_outputs, num_outputs, 3),
        )
        if num_inputs == num_outputs and stride == 1:
            # An empty chain returns its input.
            return Sum(Chain(first_norm, convs), Chain())
        shortcut = self.add_conv(f"{name}._shortcut", num_inputs, num_outputs, 1, stride=stride)
        return Chain(first_norm, Sum(convs, shortcut))

    def num_first_filters(self) -> int:
        return 16 * self.width
