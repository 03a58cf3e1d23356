"""A network without its last block, and this block."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from alfa.backbones import LAST_BLOCK_SHAPE, backbone_cards, last_block, open_backbone


def test_the_last_block_completes_the_network(plain, install) -> None:
    network = plain("efficientnet-lite0")
    card = next(card for card in backbone_cards() if card.name == "efficientnet-lite0-body")
    install(card, network.state_dict())
    body = open_backbone(card.name)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 224, 224), np.uint8)
    maps = torch.from_numpy(body.features(x)).unflatten(1, LAST_BLOCK_SHAPE)
    assert body.num_features == card.num_features == maps[0].numel()
    expand, depthwise, project, last = last_block()
    maps = project(F.relu6(depthwise(F.relu6(expand(maps)))))
    found = F.relu6(last(maps)).mean((2, 3)).numpy()
    expected = open_backbone("efficientnet-lite0").features(x)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
