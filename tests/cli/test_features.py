"""Every command on a run that was meta-trained on features of a pretrained backbone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa import FewShotClassifier
from alfa.backbones import Backbone
from alfa.runs import Run
from alfa.testing import register_small_backbone

SMALL = register_small_backbone()
TINY = {
    "outer.num_iterations": 4,
    "outer.validate_every": 2,
    "outer.num_val_tasks": 4,
    "outer.num_tasks": 2,
    "test.num_tasks": 6,
    "tasks.num_query": 3,
}
SETTINGS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the images whose features are computed."""
    counts: list[int] = []
    true = Backbone.features

    def features(self: Backbone, levels: np.ndarray) -> np.ndarray:
        counts.append(len(levels))
        return true(self, levels)

    monkeypatch.setattr(Backbone, "features", features)
    return counts


def photos(folder: Path, num_classes: int, num_photos: int, *, first: int = 0) -> Path:
    """Save photos of different sizes, one color for each class, with noise."""
    rng = np.random.default_rng(first)
    for number in range(first, first + num_classes):
        place = folder / f"class-{number:02d}"
        place.mkdir(parents=True)
        color = np.random.default_rng([1, number]).integers(40, 216, 3)
        for photo in range(num_photos):
            height, width = rng.integers(30, 60, 2)
            pixels = color + rng.integers(-40, 40, (height, width, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{photo}.jpg")
    return folder


def test_a_folder_of_photos_from_training_to_classification(
    alfa, computed: list[int], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("alfa.build._image_folder.DEFAULT_BACKBONE", SMALL)
    monkeypatch.chdir(tmp_path)
    pets = photos(tmp_path / "pets", 8, 6)
    # With weights installed, features are the default.
    answer = alfa("train", pets, "--out", "runs/pets", *SETTINGS)
    assert answer.code == 0, answer.err
    told = answer.err
    assert "4 training classes are few, and meta-training gains more with 20 or more" in told
    assert f"2 classes with 3 support and 3 query images each, as features of {SMALL};" in told
    assert "validation accuracy" in told
    assert "on validation classes, " in answer.out or "the start is the best model" in answer.out
    run = Run.open("runs/pets")
    assert run.signature.backbone == SMALL
    assert run.experiment.tasks.options["backbone"] == SMALL
    assert (run.experiment.model.name, run.metrics[0]["iteration"]) == ("features", 0)
    assert sum(computed) == 8 * 6

    # Another method reads the saved features, and a resumed run gives the same numbers.
    steps = ["train", pets, "--backbone", SMALL, "--method", "alfa+ridge", *SETTINGS]
    assert alfa(*steps, "--out", "runs/steps").code == 0
    assert sum(computed) == 8 * 6
    shutil.copytree("runs/steps", "runs/resumed")
    result = json.loads(Path("runs/resumed/result.json").read_text())
    Path("runs/resumed/result.json").unlink()
    assert alfa("train", "--resume", "runs/resumed", "--json").code == 0
    assert Run.open("runs/resumed").result["test"] == result["test"]
    assert Run.open("runs/resumed").result["gain"] == result["gain"]

    # Another dataset is seen through the same backbone.
    other = photos(tmp_path / "other", 6, 6, first=20)
    words = ("--name", "other", "--size", "20", "--set", "split=test")
    assert alfa("data", "prepare", "folder", other, *words).code == 0
    words = ("--dataset", "other", "--num-query", "2", "--num-tasks", "4")
    answer = alfa("evaluate", "runs/pets", *words, "--json")
    assert json.loads(answer.out)["tasks"]["dataset"] == "other"
    assert sum(computed) > 8 * 6
    answer = alfa("compare", "runs/pets", "runs/steps", "--num-tasks", "4", "--json")
    assert len(json.loads(answer.out)) == 2
    for words in (("plot", "learning", "runs/pets"), ("plot", "rates", "runs/steps")):
        assert alfa(*words).code == 0
    assert alfa("data", "show", "runs/steps", "--split", "test", "--out", "show.png").code == 0
    with Image.open("show.png") as shown:
        assert shown.width > 100

    # New classes of the user's photos.
    new = photos(tmp_path / "new", 3, 4, first=40)
    answer = alfa("adapt", "runs/pets", "--support", new, "--predict", new, "--json")
    assert answer.code == 0, answer.err
    adapted = json.loads(answer.out)
    assert sorted(adapted["classes"]) == ["class-40", "class-41", "class-42"]
    files = sorted(new.rglob("*.jpg"))
    labels = [file.parent.name for file in files]
    classifier = FewShotClassifier("runs/pets").fit(files, labels)
    assert (classifier.predict(files) == labels).mean() > 0.9
    # Each photo is classified alone, from its features.
    alone = classifier.predict_proba(files[5:6])
    assert np.array_equal(classifier.predict_proba(files)[5:6], alone)


@pytest.mark.parametrize("dataset", ["spots", "varied"])
def test_a_dataset_is_trained_on_features(alfa, spots, tmp_path: Path, dataset: str) -> None:
    sizes = {
        "spots": ("--way", "3", "--shot", "2"),
        "varied": ("--set", "tasks.max_query=3", "--set", "tasks.num_query=none"),
    }
    words = ["train", dataset, "--backbone", SMALL, "--out", tmp_path / "run", *SETTINGS]
    if dataset == "varied":
        words += ["--set", "tasks.dataset=spots", "--set", "tasks.min_way=2"]
    answer = alfa(*words, *sizes[dataset])
    assert answer.code == 0, answer.err
    assert Run.open(tmp_path / "run").signature.input_shape == (8,)


def test_methods_that_train_a_backbone_say_so(refused, spots, tmp_path: Path) -> None:
    words = ("train", "spots", "--backbone", SMALL, "--out", tmp_path / "run", *SETTINGS)
    told = refused(*words, "--method", "rfs", "--way", "3", "--shot", "2")
    assert f"tasks.backbone is '{SMALL}', which is pretrained already" in told
    told = refused("train", "spots", "--backbone", "smol", "--out", tmp_path / "run")
    assert "there is no backbone 'smol'; models: conv4, " in told
    assert not (tmp_path / "run").exists()


def test_a_stopped_computation_of_features_continues(
    alfa, spots, computed: list[int], tmp_path: Path, monkeypatch
) -> None:
    folder = tmp_path / "saved"
    monkeypatch.setattr("alfa.data._features.data_folder", lambda: folder)
    true = Backbone.features

    def interrupted(self: Backbone, levels: np.ndarray) -> np.ndarray:
        if sum(computed) == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return true(self, levels)

    words = ["train", "spots", "--backbone", SMALL, "--out", tmp_path / "run", *SETTINGS]
    words += ["--way", "3", "--shot", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(Backbone, "features", interrupted)
        stopped = alfa(*words)
    assert stopped.code == 130
    assert "resume it with `alfa train --resume" in stopped.err
    # Two classes of nine images were complete.
    assert len(list(folder.rglob("*.npy"))) == 2
    assert sum(computed) == 21
    answer = alfa("train", "--resume", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert sum(computed) == 21 + (14 - 2) * 9
    assert len(list(folder.rglob("*.npy"))) == 14
