"""Features of a network's last layer and middle, and histograms of edges."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alfa.backbones._base import Backbone, BackboneCard, Preprocessing, register_backbone
from alfa.backbones._efficientnet_lite import LITE0, load_lite0
from alfa.backbones._inverted_residuals import NUM_FEATURES, InvertedResiduals
from alfa.backbones._prepacked import prepacked

# The blocks of the stage before the last one, and the number of their channels.
_MIDDLE = (11, 12, 13, 14)
_NUM_MIDDLE = 4 * 192
# The side of the gray image, of a cell, and of the grid of cells.
_SIDE, _CELL = 56, 8
_NUM_CELLS = _SIDE // _CELL
_NUM_DIRECTIONS = 9
_NUM_EDGES = 4 * _NUM_DIRECTIONS * (_NUM_CELLS - 1) ** 2
# The squared norms of the groups. The first one describes what a photo shows, so it dominates
# the similarity of two photos; a head may choose other ratios.
_SHARES = (1.0, 0.1, 0.1)

MIXED_GROUPS: Final = (NUM_FEATURES, _NUM_MIDDLE, _NUM_EDGES)
"""The numbers of features: of the last layer, of the middle, and of edges."""


class EdgeHistograms(nn.Module):
    """Histograms of oriented gradients (Dalal & Triggs, 2005) of square images.

    A cell contains the lengths of its gradients by direction. A gradient g contributes
    |g| |cos(d)|^8 to a direction at the angle d from it, which is close to a histogram of nine
    directions and needs no arctangent, so that every ONNX runtime can compute it. Blocks of 2 x 2
    cells, which overlap, are divided by their norms.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        if size % _SIDE:
            raise ValueError(f"`size` must be a multiple of {_SIDE}, got {size}.")
        self.pool = size // _SIDE
        angles = torch.arange(_NUM_DIRECTIONS) * (torch.pi / _NUM_DIRECTIONS)
        directions = torch.stack([angles.cos(), angles.sin()], dim=1)[..., None, None]
        self.register_buffer("directions", directions)

    def forward(self, x: Tensor) -> Tensor:
        gray = F.avg_pool2d(x.mean(1, keepdim=True), self.pool)
        padded = F.pad(gray, (1, 1, 1, 1), mode="replicate")
        right = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
        down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
        # Inputs of the network go from -1 to 1, and the differences span two pixels.
        g = torch.cat([right, down], dim=1) / 4
        # The exporter to ONNX omits the addition of a small number, but not a clamp.
        length = g.square().sum(1, keepdim=True).sqrt().clamp(min=1e-4)
        along = F.conv2d(g, self.directions)  # type: ignore[arg-type]
        cells = F.avg_pool2d(length * (along / length).square().square().square(), _CELL)
        energy = 4 * F.avg_pool2d(cells.square().sum(1, keepdim=True), 2, 1)
        scale = energy.sqrt() + 1e-3 / _CELL
        last = _NUM_CELLS - 1
        corners = [cells[:, :, i : i + last, j : j + last] for i in (0, 1) for j in (0, 1)]
        return (torch.cat(corners, dim=1) / scale).flatten(1)


class MixedFeatures(nn.Module):
    """Features of three groups, each divided by its norm and multiplied by the root of its share.

    The last layer describes what a photo shows. Textures and scenes differ more in the middle of
    the network, and rigid shapes, such as signs, in their edges. Powers below 1 reduce the
    influence of a few large features.

    Args:
        network: returns the features of the last layer and of the middle.
    """

    def __init__(self, network: InvertedResiduals) -> None:
        super().__init__()
        self.network = network
        self.edges = EdgeHistograms(network.size)

    def forward(self, x: Tensor) -> Tensor:
        return self.mixed(x, self.network(x))

    def mixed(self, x: Tensor, z: Tensor) -> Tensor:
        last, middle = z.split(MIXED_GROUPS[:2], dim=1)
        groups = (last.pow(0.7), middle.sign() * middle.abs().sqrt(), self.edges(x))
        parts = zip(groups, _SHARES, strict=True)
        return torch.cat([share**0.5 * F.normalize(group) for group, share in parts], dim=1)


def _infer(features: MixedFeatures, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return features.mixed(x, network(x))


_CARD: Final[BackboneCard] = dataclasses.replace(
    LITE0,
    name=f"{LITE0.name}-mixed",
    title=f"{LITE0.title}, its middle layers, and edges",
    num_features=sum(MIXED_GROUPS),
)


@register_backbone(_CARD.name, card=_CARD)
def _open() -> Backbone:
    network = load_lite0(_MIDDLE)
    features, fast = MixedFeatures(network), prepacked(network)
    infer = None if fast is None else functools.partial(_infer, features, fast)
    prepared: Preprocessing = _CARD.preprocessing
    return Backbone(_CARD.name, features, _CARD.num_features, prepared, infer=infer)
