"""The pretrained models that come with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from alfa import FewShotClassifier, Run
from alfa.backbones import backbone_cards
from alfa.errors import CheckpointError, ConfigError
from alfa.runs import find_run, model_card, model_names


@pytest.mark.parametrize("name", model_names())
def test_a_model_classifies_new_classes(name: str) -> None:
    if name == "photos" and not backbone_cards()[0].is_installed:
        pytest.skip("the weights of the backbone are not installed")
    images = np.random.default_rng(0).integers(0, 256, (10, 20, 30, 3), np.uint8)
    classifier = FewShotClassifier(name).fit(images, list("aabbccddee"))
    assert classifier.predict_proba(images).shape == (10, 5)


@pytest.mark.parametrize("name", [name for name in model_names() if name != "photos"])
def test_a_card_agrees_with_the_stored_result(name: str) -> None:
    card = model_card(name)
    test = Run.open(name).result["test"]
    (row,) = [row for row in card.expected[:2] if row.batch_norm == test["batch_norm"]][:1]
    assert row.accuracy == pytest.approx(test["accuracy"], abs=1e-4)
    assert row.interval == pytest.approx(test["accuracy_interval"], abs=1e-4)
    assert 0 < card.num_bytes < 500_000


def test_the_model_of_photos_needs_no_training() -> None:
    learner = Run.open("photos").learner()
    assert list(learner.meta_parameters()) == []
    assert learner.num_steps == 0
    # The head of five classes has zeros for 3,344 features, and the weights are not in the run.
    assert model_card("photos").num_bytes < 80_000


def test_an_existing_folder_has_precedence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model_card("strokes").path, "cifar-fs")
    assert Run.open("cifar-fs").path == Path("cifar-fs")
    assert Run.open("cifar-fs").experiment.tasks.options["dataset"] == "strokes-free"
    assert Run.open("cifar-fs-l2f").is_pretrained


def test_an_unknown_name_lists_the_models() -> None:
    names = "cifar-fs, cifar-fs-l2f, photos, strokes"
    with pytest.raises(ConfigError, match=f"must be one of {names}, got 'x'"):
        model_card("x")
    with pytest.raises(CheckpointError, match=f"or a pretrained model: {names}"):
        Run.open("cifar-sf")


def test_other_paths_stay_as_they_are() -> None:
    assert find_run("runs/cifar-fs") == Path("runs/cifar-fs")
    assert find_run("unknown") == Path("unknown")
