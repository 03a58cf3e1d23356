"""Models of timm.

timm needs torchvision, which not every environment has. Most tests therefore use a stub with the
functions of timm that alfa calls: `is_model`, `list_models`, `create_model`, and
`data.resolve_model_data_config`. The last tests use timm itself, if it can be imported.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from alfa.backbones import Preprocessing, open_backbone
from alfa.backbones._timm import open_timm
from alfa.errors import ConfigError

CONFIG: dict[str, Any] = {
    "input_size": (3, 32, 32),
    "interpolation": "bicubic",
    "mean": (0.5, 0.4, 0.3),
    "std": (0.2, 0.3, 0.4),
    "crop_pct": 0.9,
    "crop_mode": "center",
}


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stub of timm with one model, whose pretrained weights are ones."""
    stub: Any = types.ModuleType("timm")
    stub.config = CONFIG
    stub.names = ["tinynet"]

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> nn.Module:
        assert num_classes == 0
        network = nn.Sequential(nn.Conv2d(3, 7, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        if pretrained:
            nn.init.ones_(network[0].weight)
        return network

    stub.is_model = lambda name: name.partition(".")[0] in stub.names
    stub.list_models = lambda: stub.names
    stub.create_model = create_model
    stub.data = types.SimpleNamespace(resolve_model_data_config=lambda model: stub.config)
    monkeypatch.setitem(sys.modules, "timm", stub)
    return stub


def test_a_model_has_its_own_preprocessing(timm: Any) -> None:
    backbone = open_backbone("timm:tinynet.in1k")
    assert backbone.name == "timm:tinynet.in1k"
    # The shorter side has floor(32 / 0.9) pixels.
    expected = Preprocessing(32, 35, "bicubic", (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    assert backbone.preprocessing == expected
    assert backbone.num_features == 7
    assert (backbone.network[0].weight == 1).all()
    assert backbone.features(np.zeros((2, 3, 32, 32), np.uint8)).shape == (2, 7)


def test_the_fingerprint_depends_on_weights_and_preprocessing(timm: Any) -> None:
    fingerprints = []
    for config in (CONFIG, CONFIG, {**CONFIG, "crop_pct": 0.8}):
        timm.config = config
        torch.manual_seed(0)
        fingerprints.append(open_timm("tinynet").fingerprint)
    torch.manual_seed(0)
    fingerprints.append(open_timm("tinynet", pretrained=False).fingerprint)
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 3


def test_opening_leaves_the_random_numbers_alone(timm: Any) -> None:
    before = torch.get_rng_state()
    open_backbone("timm:tinynet")
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_model_is_an_error_with_a_hint(timm: Any) -> None:
    with pytest.raises(ConfigError, match=r"timm has no model 'tinynets'\. Did you mean 'tinynet'"):
        open_backbone("timm:tinynets")


@pytest.mark.parametrize("error", [OSError("no route\nto host"), ValueError(), RuntimeError("x")])
def test_a_failed_download_is_one_error(timm: Any, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    timm.create_model = fail
    reason = (str(error) or "ValueError").partition("\n")[0]
    expected = rf"^timm cannot load the weights of 'tinynet' \({reason}\); check the connection"
    with pytest.raises(ConfigError, match=expected):
        open_backbone("timm:tinynet")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"input_size": (1, 32, 32)}, "takes inputs of 1 x 32 x 32, but alfa supports only square"),
        ({"input_size": (3, 32, 48)}, "takes inputs of 3 x 32 x 48, but alfa supports only square"),
        (
            {"interpolation": "lanczos"},
            "the filter 'lanczos', but alfa has only bilinear and bicub",
        ),
    ],
)
def test_other_preprocessing_is_an_error(timm: Any, change, problem: str) -> None:
    timm.config = {**CONFIG, **change}
    with pytest.raises(ConfigError, match=problem):
        open_backbone("timm:tinynet")


@pytest.mark.parametrize("missing", ["timm", "torchvision"])
def test_an_error_names_the_extra_without_timm(
    monkeypatch: pytest.MonkeyPatch, tmp_path, missing: str
) -> None:
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "torchvision":
        (tmp_path / "timm.py").write_text("import torchvision")
        monkeypatch.syspath_prepend(tmp_path)
    expected = rf"'timm:resnet50' needs timm, .*{missing}.*; run `pip install 'alfa\[timm\]'`"
    with pytest.raises(ConfigError, match=expected):
        open_backbone("timm:resnet50")


# --- timm itself


@pytest.fixture
def real_timm() -> Any:
    try:
        return pytest.importorskip("timm", reason="needs pip install 'alfa[timm]'")
    except RuntimeError as error:
        pytest.skip(f"torchvision does not fit torch: {error}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "mobilenetv3_small_050"])
def test_models_without_weights_have_features(real_timm: Any, name: str) -> None:
    backbone = open_timm(name, pretrained=False)
    side = backbone.preprocessing.size
    levels = np.random.default_rng(0).integers(0, 256, (1, 3, side, side), np.uint8)
    found = backbone.features(levels)
    assert found.shape == (1, backbone.num_features)
    assert np.isfinite(found).all()
    config = real_timm.data.resolve_model_data_config(backbone.network)
    # Without the crop, an image of this size stays as it is.
    transform = real_timm.data.create_transform(**{**config, "crop_pct": 1.0}, is_training=False)
    expected = transform(Image.fromarray(levels[0].transpose(1, 2, 0)))
    assert torch.allclose(backbone.normalized(levels)[0], expected, atol=1e-5)
