"""Learning curves of runs, read from their folders."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from alfa.config import compose
from alfa.data import Sinusoids
from alfa.errors import CheckpointError
from alfa.report.learning import METRICS, read_curves
from alfa.report.plots import figure_bytes, metric_curves
from alfa.runs import Run


@pytest.fixture
def run(tmp_path) -> Callable[..., Path]:
    """Return a function that creates a run folder with records."""

    def make(path: str, *records: dict[str, float | None]) -> Path:
        run = Run.new(tmp_path / path, compose("sinusoid"))
        run.create(Sinusoids().signature())
        lines = (json.dumps({"iteration": 5 * (n + 1), **r}) for n, r in enumerate(records))
        run.files.metrics.write_text("".join(line + "\n" for line in lines))
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
    path = run("run", LOSSES, {"val_loss": None, "train_loss": 1.0}, LOSSES, {"val_loss": math.inf})
    assert read_curves([path]) == ({"run": ((5, 3.0), (15, 3.0))}, "val_loss")


def test_runs_have_the_shortest_unique_names(run) -> None:
    paths = [run(path, LOSSES) for path in ("a/maml", "b/maml", "b/alfa")]
    assert list(read_curves(paths[1:])[0]) == ["maml", "alfa"]
    assert list(read_curves(paths)[0]) == ["a/maml", "b/maml", "b/alfa"]
    # A run that is given twice is drawn once.
    assert list(read_curves([*paths, paths[0]])[0]) == ["a/maml", "b/maml", "b/alfa"]
    again = paths[0] / ".." / "maml"
    assert list(read_curves([paths[0], again, paths[2]])[0]) == ["maml", "alfa"]
    # A link keeps its name.
    link = paths[0].parents[1] / "latest"
    link.symlink_to(paths[1])
    assert list(read_curves([link, paths[2]])[0]) == ["latest", "alfa"]


def test_missing_metrics_and_runs_are_errors(run, tmp_path) -> None:
    curves, begun = run("curves", LOSSES), run("begun")
    with pytest.raises(CheckpointError, match="curves has no val_accuracy, only val_loss, train_"):
        read_curves([curves], metric="val_accuracy")
    told = r"begun has no val_loss, because no validation was finite so far; leave it out\."
    with pytest.raises(CheckpointError, match=told):
        read_curves([curves, begun])
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file is not a run: it is a file"):
        read_curves([tmp_path / "file"])
    with pytest.raises(CheckpointError, match="nowhere is not a run: it does not exist"):
        read_curves([tmp_path / "nowhere"])


def test_every_run_has_a_unique_style() -> None:
    curves = {f"run {number}": ((5, 1.0 + number), (10, 2.0)) for number in range(48)}
    figure = metric_curves(curves, title=METRICS["val_loss"].title)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "validation loss"
    looks = {(x.get_color(), x.get_linestyle(), x.get_marker()) for x in axes.lines}
    assert len(looks) == 48
    # The legend lies inside the figure.
    figure_bytes(figure, "png")
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    assert [tuple(line.get_ydata()) for line in axes.lines][:2] == [(1.0, 2.0), (2.0, 2.0)]


def test_a_run_with_nothing_to_train_is_a_horizontal_line() -> None:
    curves = {"maml": ((5, 1.0), (10, 2.0)), "random": ((0, 1.5),), "begun": ((5, 1.7),)}
    figure = metric_curves(curves, title="validation loss")
    (axes,) = figure.axes
    trained, level, point = axes.lines
    assert list(level.get_ydata()) == [1.5, 1.5]
    assert (trained.get_marker(), point.get_marker()) == ("None", "o")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("maml", "random (nothing to train)", "begun")
    ]


@pytest.mark.parametrize("name", ["_old", "lr$_$5", "a$b$", "x" * 200])
def test_a_run_may_have_any_name(name: str) -> None:
    figure = metric_curves({name: ((5, 1.0), (10, 2.0)), "b": ((5, 1.0),)}, title="loss")
    assert figure_bytes(figure, "svg").startswith(b"<?xml")
    told = figure.legends[0].get_texts()[0].get_text()
    assert told == name if len(name) < 40 else told.endswith("x" * 40)


def test_losses_that_explode_are_cut_off() -> None:
    curves = {"a": tuple((n, 1.0 + n / 100) for n in range(1, 20)), "b": ((5, 1.5), (10, 1e9))}
    (axes,) = metric_curves(curves, title="loss", explodes=True).axes
    assert axes.get_ylim()[1] < 10
    assert axes.get_ylabel() == "loss (cut off; maximum 1e+09)"
    (axes,) = metric_curves(curves, title="loss").axes
    assert axes.get_ylim()[1] > 1e9
