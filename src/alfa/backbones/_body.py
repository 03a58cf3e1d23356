"""A network without its last block, which tasks can then adapt."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Final

from torch import Tensor, nn

from alfa.backbones._base import Backbone, BackboneCard, register_backbone
from alfa.backbones._efficientnet_lite import LITE0, load_lite0
from alfa.backbones._inverted_residuals import Block

_NUM_BLOCKS = 15

LAST_BLOCK_SHAPE: Final = (192, 7, 7)
"""The channels, the height, and the width of the input of the last block."""

_CARD: Final[BackboneCard] = dataclasses.replace(
    LITE0,
    name=f"{LITE0.name}-body",
    title=f"{LITE0.title} without its last block",
    num_parameters=2_334_976,
    num_features=math.prod(LAST_BLOCK_SHAPE),
)


class _Body(nn.Module):
    """The stem and the first blocks; its features are the input of the last block."""

    def __init__(self, stem: nn.Sequential, blocks: nn.Sequential) -> None:
        super().__init__()
        self.stem, self.blocks = stem, blocks

    def forward(self, x: Tensor) -> Tensor:
        # Channels first, as in the shape.
        return self.blocks(self.stem(x)).contiguous().flatten(1)  # type: ignore[no-any-return]


@register_backbone(_CARD.name, card=_CARD)
def _open() -> Backbone:
    network = load_lite0()
    body = _Body(network.stem, nn.Sequential(*list(network.blocks)[:_NUM_BLOCKS]))
    return Backbone(_CARD.name, body, _CARD.num_features, _CARD.preprocessing)


def last_block() -> list[nn.Conv2d]:
    """Return the four convolutions that follow the backbone ``"efficientnet-lite0-body"``.

    They are an expansion, a depthwise convolution, a projection, and the last convolution of the
    network. ReLU6 follows all but the projection, and the features are the mean over the image.
    """
    network = load_lite0()
    block = network.blocks[_NUM_BLOCKS]
    assert isinstance(block, Block)
    assert not block.is_residual
    layers = copy.deepcopy([*block.layers, *network.head])
    return [layer for layer in layers if isinstance(layer, nn.Conv2d)]
