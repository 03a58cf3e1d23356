"""The learning curves of runs, read from their folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from alfa.config import load_experiment
from alfa.errors import CheckpointError
from alfa.report.learning import METRICS, read_curves
from alfa.report.plots import metric_curves
from alfa.train import Run


@pytest.fixture
def run(tmp_path) -> Callable[..., Path]:
    """A run folder with some records, by its path."""

    def make(path: str, *records: dict[str, float | None]) -> Path:
        Run(tmp_path / path).create(load_experiment("sinusoid-alfa"))
        lines = (json.dumps({"iteration": 5 * (n + 1), **r}) for n, r in enumerate(records))
        Run(tmp_path / path).metrics.write_text("".join(line + "\n" for line in lines))
        return tmp_path / path

    return make


ACCURATE = {"val_accuracy": 0.5, "val_loss": 2.0, "train_loss": 1.0}
LOSSES = {"val_loss": 3.0, "train_loss": 1.5}


def test_the_metric_is_the_first_that_all_runs_have(run) -> None:
    images, curves = run("images", ACCURATE, ACCURATE), run("curves", LOSSES)
    untrained = run("untrained", {"iteration": 0, "val_accuracy": 0.25, "val_loss": 4.0})
    assert read_curves([images, untrained]) == (
        {"images": ((5, 50.0), (10, 50.0)), "untrained": ((0, 25.0),)},
        "val_accuracy",
    )
    found = {"images": ((5, 2.0), (10, 2.0)), "curves": ((5, 3.0),)}
    assert read_curves([images, curves]) == (found, "val_loss")
    assert read_curves([images], metric="train_loss") == (
        {"images": ((5, 1.0), (10, 1.0))},
        "train_loss",
    )


def test_a_validation_that_was_not_finite_is_left_out(run) -> None:
    path = run("run", LOSSES, {"val_loss": None, "train_loss": 1.0}, LOSSES)
    assert read_curves([path]) == ({"run": ((5, 3.0), (15, 3.0))}, "val_loss")


def test_runs_are_called_by_as_much_of_their_paths_as_tells_them_apart(run) -> None:
    paths = [run(path, LOSSES) for path in ("a/maml", "b/maml", "b/alfa")]
    assert list(read_curves(paths[1:])[0]) == ["maml", "alfa"]
    assert list(read_curves(paths)[0]) == ["a/maml", "b/maml", "b/alfa"]
    # Named twice is drawn once.
    assert list(read_curves([*paths, paths[0]])[0]) == ["a/maml", "b/maml", "b/alfa"]
    again = paths[0] / ".." / "maml"
    assert list(read_curves([paths[0], again])[0]) == [str(paths[0]), str(again)]


def test_what_a_run_does_not_have_is_told(run, tmp_path) -> None:
    curves, begun = run("curves", LOSSES), run("begun")
    with pytest.raises(CheckpointError, match="curves has no val_accuracy, only val_loss, train_"):
        read_curves([curves], metric="val_accuracy")
    with pytest.raises(CheckpointError, match="begun has no val_loss, no validation yet; leave it"):
        read_curves([curves, begun])
    with pytest.raises(CheckpointError, match="nowhere is not a run: it does not exist"):
        read_curves([tmp_path / "nowhere"])


def test_every_run_has_a_look_of_its_own() -> None:
    curves = {f"run {number}": ((5, 1.0 + number), (10, 2.0)) for number in range(12)}
    (axes,) = metric_curves(curves, title=METRICS["val_loss"].title).axes
    assert axes.get_ylabel() == "validation loss"
    looks = {(line.get_color(), str(line._dash_pattern)) for line in axes.lines}  # type: ignore[attr-defined]
    assert len(looks) == 12
    assert [tuple(line.get_ydata()) for line in axes.lines][:2] == [(1.0, 2.0), (2.0, 2.0)]


def test_what_has_nothing_to_train_is_a_level() -> None:
    curves = {"maml": ((5, 1.0), (10, 2.0)), "random": ((0, 1.5),), "begun": ((5, 1.7),)}
    figure = metric_curves(curves, title="validation loss")
    (axes,) = figure.axes
    trained, level, point = axes.lines
    assert list(level.get_ydata()) == [1.5, 1.5]
    assert (trained.get_marker(), point.get_marker()) == ("None", "o")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("maml", "random (nothing to train)", "begun")
    ]
