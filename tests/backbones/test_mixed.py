"""The features of the last layer, of the middle, and of edges."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from alfa.backbones import MIXED_GROUPS, Backbone, backbone_cards, open_backbone
from alfa.backbones._mixed import EdgeHistograms

NAME = "efficientnet-lite0-mixed"


@pytest.fixture
def mixed(plain, install) -> tuple[Backbone, torch.nn.Module]:
    """The backbone, and the plain network with the same random weights."""
    network = plain("efficientnet-lite0")
    card = next(card for card in backbone_cards() if card.name == NAME)
    install(card, network.state_dict())
    return open_backbone(NAME), network


def test_features_equal_those_of_the_plain_network(mixed) -> None:
    backbone, network = mixed
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 224, 224), np.uint8)
    outputs: dict[int, Tensor] = {}
    network.double()
    for number in range(11, 15):
        network._blocks[number].register_forward_hook(
            lambda _, __, out, number=number: outputs.__setitem__(number, out.mean((2, 3)))
        )
    last = network.features_of(backbone.normalized(x).double())[0]
    middle = torch.cat([outputs[number][0] for number in range(11, 15)])
    edges = torch.from_numpy(histograms(x[0].mean(0)))
    groups = (last**0.7, middle.sign() * middle.abs().sqrt(), edges)
    parts = zip(groups, (1, 0.1, 0.1), strict=True)
    expected = torch.cat([share**0.5 * group / group.norm() for group, share in parts])
    assert len(expected) == backbone.num_features == sum(MIXED_GROUPS)
    for found in (backbone.features(x), backbone.network(backbone.normalized(x)).numpy()):
        torch.testing.assert_close(torch.from_numpy(found[0]).double(), expected, rtol=0, atol=2e-6)


def histograms(gray: np.ndarray) -> np.ndarray:
    """Return the histograms of an image of 224 x 224 with loops."""
    small = np.pad(gray.reshape(56, 4, 56, 4).mean((1, 3)) / 255, 1, mode="edge")
    cells = np.zeros((7, 7, 9))
    for row in range(56):
        for column in range(56):
            right = (small[row + 1, column + 2] - small[row + 1, column]) / 2
            down = (small[row + 2, column + 1] - small[row, column + 1]) / 2
            angle = np.arctan2(down, right) - np.arange(9) * np.pi / 9
            weights = np.hypot(right, down) * np.cos(angle) ** 8
            cells[row // 8, column // 8] += weights / 64
    blocks = []
    for row in range(6):
        for column in range(6):
            block = cells[row : row + 2, column : column + 2]
            blocks.append((block / (np.linalg.norm(block) + 1e-3 / 8)).reshape(4, 9))
    # First the places in a block, then the directions, then the blocks.
    return np.stack(blocks, axis=-1).ravel()


def test_edges_do_not_depend_on_brightness_and_contrast() -> None:
    x = torch.rand(1, 3, 56, 56)
    edges = EdgeHistograms(56)
    torch.testing.assert_close(edges(0.5 * x + 0.2), edges(x), rtol=1e-2, atol=1e-2)
    assert float((edges(x.flip(3)) - edges(x)).abs().max()) > 0.1
    assert bool(edges(torch.ones(1, 3, 56, 56)).isfinite().all())


def test_a_copy_computes_the_same_features(mixed) -> None:
    backbone, _ = mixed
    x = np.random.default_rng(1).integers(0, 256, (1, 3, 224, 224), np.uint8)
    for same in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
        assert (same.infer is None) == (backbone.infer is None)
        assert np.array_equal(same.features(x), backbone.features(x))
        assert same.fingerprint == backbone.fingerprint
