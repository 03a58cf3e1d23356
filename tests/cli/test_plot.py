"""Figures of trained runs from the command line."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.config import compose
from alfa.report.load import load_run
from alfa.report.plots import sinusoid_tasks
from alfa.report.rates import used_rates
from alfa.runs import Run
from alfa.training import train_run

# In double precision, to which examples are converted.
SINE = (
    *("outer.num_iterations=2", "outer.num_val_tasks=2", "test.num_tasks=2", "model.hidden=[6]"),
    "engine.dtype=float64",
)
PICTURES = (
    *("outer.num_iterations=2", "outer.num_val_tasks=2", "test.num_tasks=2", "model.filters=4"),
    *("model.num_blocks=2", "inner.num_steps=2", "tasks.dataset=spots", "tasks.way=3"),
    *("tasks.shot=2", "tasks.num_query=3", "engine.dtype=float64"),
)


def _trained(alfa, path: Path, name: str, settings: tuple[str, ...]) -> Path:
    words = [word for setting in settings for word in ("--set", setting)]
    answer = alfa("train", name, "--out", path, *words)
    assert answer.code == 0, answer.err
    return path


@pytest.fixture(scope="module")
def sine(tmp_path_factory) -> Path:
    """A run on curves; do not change it."""
    path = tmp_path_factory.mktemp("runs") / "sine"
    train_run(Run.new(path, compose("sinusoid", overrides=SINE)))
    return path


@pytest.fixture(scope="module")
def images_run(spots_folder, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "images"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALFA_DATA", str(spots_folder))
        train_run(Run.new(path, compose("strokes", overrides=PICTURES)))
    return path


@pytest.fixture
def images(images_run: Path, spots) -> Path:
    """A run on images; do not change it."""
    return images_run


def test_rates_are_drawn_in_every_format(alfa, sine, tmp_path) -> None:
    files = [tmp_path / f"rates.{kind}" for kind in ("png", "svg", "pdf", "csv")]
    # Every layer adds two panels, which take a second each.
    words = ["--num-tasks", "4", "--layer", "linear1.*"]
    words += [word for file in files for word in ("--out", file)]
    answer = alfa("plot", "rates", sine, *words)
    assert answer.code == 0
    assert answer.out.splitlines() == [f"written: {file}" for file in files]
    beginnings = [file.read_bytes()[:5] for file in files]
    assert beginnings == [b"\x89PNG\r", b"<?xml", b"%PDF-", b"tasks"]
    before = [file.read_bytes() for file in files]
    alfa("plot", "rates", sine, *words)
    assert [file.read_bytes() for file in files] == before


def test_rates_on_two_datasets_are_one_picture(alfa, images, tmp_path) -> None:
    out = tmp_path / "rates.csv"
    words = ("--dataset", "spots", "--dataset", "strokes", "--layer", "conv1.*")
    answer = alfa("plot", "rates", images, *words, "--num-tasks", "2", "--out", out)
    assert answer.code == 0
    lines = out.read_text().splitlines()[1:]
    assert len(lines) == 2 * 2 * 2 * 2
    assert {line.split(",")[0] for line in lines} == {"spots", "strokes"}
    assert {line.split(",")[3] for line in lines} == {"conv1.weight", "conv1.bias"}


def test_rates_are_those_of_the_runs_own_test(alfa, tmp_path) -> None:
    settings = (*SINE, "inner.num_test_steps=3")
    run = _trained(alfa, tmp_path / "seeded", "sinusoid", (*settings, "seed=3"))
    out = tmp_path / "rates.csv"
    assert alfa("plot", "rates", run, "--num-tasks", "2", "--out", out).code == 0
    with out.open() as file:
        found = [float(row["alpha"]) for row in csv.DictReader(file)]
    loaded = load_run(run)
    own, other = (
        used_rates(loaded.learner, loaded.tasks, title="", num_tasks=2, seed=seed).alpha
        for seed in (3, 0)
    )
    assert own.shape == (3, 2, 4)
    assert found == pytest.approx(own.swapaxes(0, 1).flatten().tolist(), rel=1e-6)
    assert found != pytest.approx(other.swapaxes(0, 1).flatten().tolist(), rel=1e-6)


def test_a_model_with_dropout_is_drawn_without_it(alfa, tmp_path, dropping) -> None:
    settings = (*(word for word in SINE if "hidden" not in word), f"model={{name='{dropping}'}}")
    run = _trained(alfa, tmp_path / "dropping", "sinusoid", settings)
    drawn: dict[str, list[bytes]] = {"rates.csv": [], "fit.svg": []}
    for name, files in drawn.items():
        for _ in range(2):
            words = ("--num-tasks", "2", "--out", tmp_path / name)
            assert alfa("plot", name.partition(".")[0], run, *words).code == 0
            files.append((tmp_path / name).read_bytes())
    assert all(first == second for first, second in drawn.values())


def test_fits_are_drawn_for_several_runs(alfa, sine, tmp_path) -> None:
    out = tmp_path / "fit.png"
    assert alfa("plot", "fit", sine, sine, "--num-tasks", "2", "--out", out).code == 0
    with Image.open(out) as picture:
        assert picture.size[0] > 600


def test_fits_of_several_runs_are_of_the_same_curves_and_steps(sine, alfa, tmp_path) -> None:
    settings = (*SINE, "seed=5", "inner.num_steps=2")
    other = _trained(alfa, tmp_path / "other", "sinusoid", settings)
    figure = sinusoid_tasks([load_run(sine), load_run(other)], num_tasks=2)
    rows = [figure.axes[:2], figure.axes[2:]]
    curves = [[axes.lines[-2].get_ydata() for axes in row] for row in rows]
    np.testing.assert_array_equal(curves[0], curves[1])
    # One line before the first step and after each, with the number and colors of the legend.
    steps = [[line.get_color() for line in row[0].lines[:-2]] for row in rows]
    assert [len(colors) for colors in steps] == [6, 3]
    assert steps[0][:3] == steps[1]
    widths = [[line.get_linewidth() for line in row[0].lines[:-2]] for row in rows]
    assert widths == [[1] * 5 + [1.8], [1, 1, 1.8]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][2:] == [
        *("before", "step 1", "step 2", "step 3", "step 4", "step 5")
    ]


def test_learning_curves_are_drawn_also_of_runs_that_are_not_complete(
    alfa, sine, images, tmp_path
) -> None:
    unfinished = Path(shutil.copytree(sine, tmp_path / "unfinished"))
    (unfinished / "result.json").unlink()
    out = tmp_path / "learning.svg"
    answer = alfa("plot", "learning", unfinished, images, "--out", out)
    assert (answer.code, answer.out) == (0, f"written: {out}\n")
    assert "validation loss" in out.read_text()
    assert alfa("plot", "learning", images, "--out", out).code == 0
    assert "validation accuracy, %" in out.read_text()
    assert alfa("plot", "learning", images, "--metric", "train_loss", "--out", out).code == 0
    assert "training loss" in out.read_text()


def test_an_episode_of_a_run_is_drawn_with_the_predictions(alfa, images, tmp_path) -> None:
    out = tmp_path / "episode.png"
    answer = alfa("data", "show", images, "--episode", "1", "--out", out)
    assert (answer.code, answer.out) == (0, f"written: {out}\n")
    with Image.open(out) as picture:
        colors = {color for _, color in picture.convert("RGB").getcolors(1 << 24)}
    # Frames: at least one color of a correct or wrong query.
    assert colors & {(58, 125, 68), (190, 49, 68)}
    assert alfa("data", "show", images, "--dataset", "strokes", "--out", out).code == 0


def test_an_episode_is_one_of_the_runs_own_test(alfa, spots, tmp_path, monkeypatch) -> None:
    settings = (*PICTURES, "seed=3", "inner.num_test_steps=1")
    run = _trained(alfa, tmp_path / "seeded", "strokes", settings)
    told: dict = {}
    monkeypatch.setattr(
        "alfa.report.episode_figure.episode_figure", lambda *a, **options: told.update(options)
    )
    assert alfa("data", "show", run, "--episode", "1", "--out", tmp_path / "a.png").code == 0
    assert (told["index"], told["split"], told["seed"]) == (1, "test", 3)
    assert told["note"].endswith("correct after 1 steps")


def test_a_run_without_inner_steps_has_no_rates(refused, tmp_path) -> None:
    settings = ["tasks.size=16", "model.filters=4"]
    run = Run.new(tmp_path / "run", compose("strokes", method="protonet", overrides=settings))
    learner, tasks, _ = run.build("cpu")
    Run.save(run.path, learner, tasks)
    assert "has no inner steps, so there are no rates to plot" in refused("plot", "rates", run.path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rates", "RUN", "--out", "a.gif"], "--out must end in .png, .svg, .pdf, .csv, got a.gif"),
        (["fit", "IMAGES"], "requires regression tasks; use `alfa data show`"),
        (["data show", "RUN"], "was not trained on images; use `alfa plot fit`"),
        (
            ["data show", "IMAGES", "--size", "8"],
            "--size requires --dataset",
        ),
        (["rates", "IMAGES", "--size", "8"], "--size requires --dataset"),
        (
            ["rates", "IMAGES", "--dataset", "spots", "--size", "9"],
            "spots is prepared in size 8, but not in 9",
        ),
        (["rates", "RUN", "--zoom", "9"], "--zoom must be between 1 and 5, got 9"),
        (["rates", "nowhere"], "nowhere is not a run: it does not exist"),
        (["data show", "IMAGES", "--split", "tset"], "Did you mean 'test'?"),
        (["data show", "IMAGES", "--varied"], "--varied applies only to datasets"),
        (["data show", "strokes", "--dataset", "spots"], "strokes is not a run; omit it"),
        (["learning", "RUN", "--metric", "val_acuracy"], "Did you mean 'val_accuracy'?"),
        (["learning", "RUN", "--metric", "val_accuracy"], "has no val_accuracy, only val_loss"),
        (["learning", "nowhere"], "nowhere is not a run: it does not exist"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_a_sentence(
    refused, request, tmp_path, monkeypatch, words, sentence
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {"RUN": "sine", "IMAGES": "images"}
    given = [request.getfixturevalue(runs[w]) if w in runs else w for w in words]
    command, *rest = given
    command = command.split() if " " in command else ["plot", command]
    assert sentence in refused(*command, *rest)
    assert not list(tmp_path.glob("*.png"))
