"""Users register their own modules, with weights from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from alfa.backbones import Preprocessing, is_backbone, open_backbone, register_module
from alfa.build import build_tasks
from alfa.config import parse_experiment
from alfa.errors import CheckpointError, ConfigError

SMALL = Preprocessing(size=16, resize=20)


def network(num_features: int = 6) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, num_features, 3), nn.BatchNorm2d(num_features), nn.ReLU(), nn.Dropout()
    )


def register(module: nn.Module | None = None, name: str = "mine", **options: Any):
    return register_module(name, module or network(), preprocessing=SMALL, **options)


def photos() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16), np.uint8)


class Answer(nn.Module):
    """Returns the same value for every batch of images."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x):
        return self.value


def test_maps_are_averaged() -> None:
    module = network()
    backbone = register(module)
    assert open_backbone("mine") is backbone
    assert backbone.num_features == 6
    expected = module(backbone.normalized(photos())).mean((2, 3))
    assert np.allclose(backbone.features(photos()), expected.numpy(), atol=1e-6)


def test_features_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5))
    backbone = register(module)
    assert backbone.network is module
    assert backbone.num_features == 5
    expected = module(backbone.normalized(photos()))
    assert np.allclose(backbone.features(photos()), expected.numpy(), atol=1e-5)


def test_the_default_preprocessing_is_that_of_imagenet() -> None:
    assert register_module("mine", network()).preprocessing == Preprocessing()


def test_a_module_may_be_registered_again() -> None:
    register()
    second = register(network(4))
    assert open_backbone("mine") is second


def test_a_module_of_half_precision_computes_in_float32() -> None:
    backbone = register(network().half())
    assert backbone.features(photos()).dtype == np.float32
    assert backbone.fingerprint


def test_built_in_names_are_taken() -> None:
    with pytest.raises(ConfigError, match="'efficientnet-lite0' already exists"):
        register(name="efficientnet-lite0")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (torch.zeros(1, 4, 5), r"\[1, 4, 5\] for one image"),
        (torch.zeros(4), r"\[4\] for one image"),
        (torch.zeros(2, 4), r"\[2, 4\] for one image"),
        ((torch.zeros(1, 4),), "tuple for one image"),
        ({"features": torch.zeros(1, 4)}, "dict for one image"),
    ],
)
def test_other_outputs_are_an_error(value: Any, found: str) -> None:
    with pytest.raises(ConfigError, match=rf"'mine' must return features .*, got {found}"):
        register(Answer(value))
    assert not is_backbone("mine")


def test_a_module_that_fails_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'mine' fails for images \[1, 3, 16, 16\]: mat1 and"):
        register(nn.Sequential(nn.Flatten(), nn.Linear(5, 5)))


# --- weights


@pytest.fixture(params=["safetensors", "pt", "pth", "bin"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[nn.Module, Path]:
    """Another module and a file with its weights."""
    module = network()
    nn.init.normal_(module[1].running_mean)
    path = tmp_path / f"weights.{request.param}"
    write = save_file if request.param == "safetensors" else torch.save
    write(module.state_dict(), path)
    return module, path


def test_weights_come_from_a_file(saved: tuple[nn.Module, Path]) -> None:
    module, path = saved
    expected = register(module, name="original")
    backbone = register(weights=path)
    assert np.array_equal(backbone.features(photos()), expected.features(photos()))
    assert backbone.fingerprint == expected.fingerprint
    assert backbone.fingerprint != register(name="untrained").fingerprint


def test_old_files_lack_the_counters_of_batch_norm(tmp_path: Path) -> None:
    state = network().state_dict()
    del state["1.num_batches_tracked"]
    torch.save(state, tmp_path / "old.pth")
    assert register(weights=tmp_path / "old.pth").num_features == 6


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"0.bias": None}, r"it lacks 0\.bias\.$"),
        ({"fc.bias": torch.zeros(2)}, r"it has fc\.bias, which the module lacks\.$"),
        (
            {"0.bias": None, "0.bia": torch.zeros(6)},
            r"lacks 0\.bias \(Did you mean '0\.bia'\?\); it has 0",
        ),
        ({"0.bias": torch.zeros(7)}, r"0\.bias is \[7\], but must be \[6\]\.$"),
        ({"0.bias": torch.zeros(6).int()}, r"0\.bias is torch.int32, but must be torch.float32\.$"),
        ({f"fc.{i}": torch.zeros(2) for i in range(9)}, r"fc\.4 and 4 more, which"),
    ],
)
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_weights_must_fit_the_module(tmp_path: Path, kind: str, change, problem: str) -> None:
    state = {**network().state_dict(), **change}
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    path = tmp_path / f"weights.{kind}"
    (save_file if kind == "safetensors" else torch.save)(state, path)
    with pytest.raises(CheckpointError, match=f"{path.name} does not fit Sequential: .*{problem}"):
        register(weights=path)


class Malicious:
    """Runs code if it is unpickled without restrictions."""

    def __reduce__(self):
        return (print, ("code of the file runs",))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"weight": Malicious()}, "is damaged, or contains more than tensors"),
        ({"epoch": 3, "state_dict": {}}, r"got a dictionary of epoch, state_dict; save `module"),
        ([torch.zeros(2)], "must contain a state dict, .* got list"),
        (torch.zeros(2), "must contain a state dict, .* got Tensor"),
    ],
)
def test_only_state_dicts_are_loaded(tmp_path: Path, capsys, content: Any, problem: str) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match=problem):
        register(weights=tmp_path / "weights.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 truncated"])
def test_a_damaged_file_is_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        register(weights=tmp_path / name)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"the weights file .*none\.pt does not exist"):
        register(weights=tmp_path / "none.pt")


# --- plugins

PLUGIN = """
from torch import nn

from alfa.backbones import Preprocessing, register_module

register_module("tiny", nn.Conv2d(3, 4, 3), preprocessing=Preprocessing(size=16, resize=20))
"""


def test_an_experiment_names_the_backbone_of_a_plugin(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own_backbone.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    content = {
        "plugins": ["own_backbone"],
        "tasks": {"name": "images", "dataset": "strokes", "backbone": "tiny"},
        "model": {"name": "mlp"},
    }
    try:
        experiment = parse_experiment(content, source=tmp_path / "mine.toml")
        tasks = build_tasks(experiment)
        assert tasks.input_shape == (4,)
        assert tasks.episode(0, num_tasks=1).support_x.shape == (1, 25, 4)
    finally:
        sys.modules.pop("own_backbone", None)
