"""Backbones are found by name, and their features depend on nothing but a photo."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import alfa.backbones
from alfa.backbones import (
    BACKBONES,
    Backbone,
    Preprocessing,
    backbone_cards,
    is_backbone,
    open_backbone,
    register_backbone,
    register_family,
)
from alfa.errors import ConfigError
from alfa.testing import register_small_backbone

MODULES = [module.name for module in pkgutil.iter_modules(alfa.backbones.__path__)]


@pytest.fixture
def small() -> Backbone:
    return open_backbone(register_small_backbone())


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"alfa.backbones.{name}")).failed == 0


def test_an_unknown_name_is_an_error_with_a_hint() -> None:
    assert not is_backbone("efficientnet-lite3")
    expected = (
        r"unknown pretrained backbone .*known: efficientnet-lite0, .*timm:NAME.* Did you mean"
    )
    with pytest.raises(ConfigError, match=expected):
        open_backbone("efficientnet-lite3")


def test_a_backbone_is_opened_once() -> None:
    opened = []

    @register_backbone("counted")
    def counted() -> Backbone:
        opened.append(1)
        return Backbone("counted", nn.Flatten(), 3 * 4 * 4, Preprocessing(size=4, resize=4))

    assert open_backbone("counted") is open_backbone("counted")
    assert len(opened) == 1


def test_a_name_belongs_to_one_backbone() -> None:
    before = BACKBONES["mobilenet-v2"]
    with pytest.raises(ConfigError, match=r"'mobilenet-v2' already exists; choose another name"):
        register_backbone("mobilenet-v2")(lambda: None)
    assert BACKBONES["mobilenet-v2"] is before


def test_a_reloaded_module_registers_its_backbone_again(small: Backbone) -> None:
    def define() -> None:
        @register_backbone("reloaded")
        def open_it() -> Backbone:
            return replace(small, name="reloaded")

    define()
    first = open_backbone("reloaded")
    define()
    assert open_backbone("reloaded") is not first


def test_a_family_opens_every_name_with_its_prefix(small: Backbone) -> None:
    @register_family("wide")
    def open_wide(name: str) -> Backbone:
        return replace(small, name=f"wide:{name}")

    assert is_backbone("wide:x")
    assert not is_backbone("wide")
    assert open_backbone("wide:any:x").name == "wide:any:x"


def test_features_are_those_of_normalized_photos(small: Backbone) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (2, 3, 24, 24), np.uint8)
    mean, std = (np.array(x).reshape(3, 1, 1) for x in (Preprocessing.mean, Preprocessing.std))
    x = torch.from_numpy((levels / 255 - mean) / std)
    expected = small.network(x.float()).numpy()
    found = small.features(levels)
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-6)
    assert np.array_equal(found, small.features(levels.astype(np.float32)))


@pytest.mark.parametrize("shape", [(3, 24, 24), (1, 3, 24, 25), (1, 1, 24, 24), (1, 3, 32, 32)])
def test_photos_of_another_shape_are_an_error(small: Backbone, shape) -> None:
    with pytest.raises(ConfigError, match=r"must have the shape \[image, 3, 24, 24\] .*got \["):
        small.features(np.zeros(shape, np.uint8))


def test_a_fingerprint_identifies_weights_and_preprocessing(small: Backbone) -> None:
    same = replace(small, name="other")
    assert same.fingerprint == small.fingerprint
    assert replace(small, preprocessing=Preprocessing(size=24, resize=30)).fingerprint != (
        small.fingerprint
    )
    other = nn.Conv2d(3, 8, 3)
    fingerprints = set()
    for value in (0.0, 1e-7):
        nn.init.constant_(other.weight, value)
        nn.init.zeros_(other.bias)
        fingerprints.add(Backbone("x", other, 8, Preprocessing()).fingerprint)
    assert len(fingerprints) == 2


def test_a_backbone_is_frozen() -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout())
    Backbone("x", network, 2, Preprocessing())
    assert not network.training
    assert not any(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"size": 0}, "`size` must be at least 1, got 0"),
        ({"resize": 200}, "`resize` must be at least `size`, which is 224, got 200"),
        ({"resample": "nearest"}, "`resample` is 'nearest', which is not one of 'bilinear', 'bic"),
        ({"mean": (0.5,)}, r"`mean` must be three numbers, .*, got \(0\.5,\) and"),
        ({"std": (0.5, 0.5, 0.0)}, "`std` three positive numbers"),
    ],
)
def test_invalid_preprocessing_is_an_error(options, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Preprocessing(**options)


def test_cards_are_for_documentation() -> None:
    for card in backbone_cards():
        assert card.license in ("Apache-2.0", "BSD-3-Clause")
        assert 70 < card.top_1 < 80
        assert card.preprocessing.resize == card.preprocessing.size + 32
        assert card.install.startswith("pip install ")
