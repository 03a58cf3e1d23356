"""Reports: loading of runs, and figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from alfa.config import compose
from alfa.errors import CheckpointError
from alfa.report import plots
from alfa.report.demo_page import write_demo_page
from alfa.report.load import load_run
from alfa.runs import Run
from alfa.training import Progress, train_run


def _draw(figure: Figure) -> None:
    figure.canvas.draw()


def test_a_run_is_loaded_with_its_best_model(trained) -> None:
    run = trained()
    assert run.title == "my-run"
    assert [record["iteration"] for record in run.metrics] == [5, 10]
    episode = run.tasks.episode(0, num_tasks=5, split="test", seed=0)
    losses = run.learner(episode, order="none").query_losses
    assert float(losses.double().mean()) == pytest.approx(run.result["test"]["loss"], rel=1e-6)


def test_a_run_is_loaded_with_the_steps_of_its_test(trained) -> None:
    run = trained("inner.num_test_steps=3")
    assert (run.result["config"]["inner"]["num_steps"], run.learner.num_steps) == (5, 3)
    assert run.result["test"]["num_steps"] == 3
    (axes,) = plots.sinusoid_tasks([run], num_tasks=1).axes
    # before and after each of three steps, the truth, and the support
    assert len(axes.lines) == 6


def test_an_incomplete_run_is_an_error_with_a_fix(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_run(
            Run.new(path, compose("sinusoid", overrides=["model.hidden=[8]"])), on_progress=stop
        )
    with pytest.raises(CheckpointError) as caught:
        load_run(path)
    message = f"{path} is not complete; resume it with `alfa train --resume {path}` first."
    assert str(caught.value) == message


def test_a_folder_that_is_not_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a run: it has no config\.toml"):
        load_run(tmp_path)


def test_learning_curves_have_a_line_and_a_dot_for_every_run(trained) -> None:
    runs = [trained(), trained("rule.name=sgd")]
    figure = plots.learning_curves(runs)
    (axes,) = figure.axes
    assert len(axes.lines) == 4
    for run, line, dot in zip(runs, axes.lines[::2], axes.lines[1::2], strict=True):
        assert line.get_xdata().tolist() == [5, 10]
        assert line.get_ydata().tolist() == [record["val_loss"] for record in run.metrics]
        assert list(dot.get_xdata()) == [run.result["best_iteration"]]
    assert axes.get_yscale() == "log"
    assert len(axes.get_legend().get_texts()) == 2
    _draw(figure)


def test_learning_curves_of_a_run_without_training(trained) -> None:
    run = trained("rule.name=sgd", "init.name=fixed")
    figure = plots.learning_curves([run])
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0]
    _draw(figure)


def test_tasks_have_a_panel_for_every_run_and_task(trained) -> None:
    runs = [trained(), trained("rule.name=sgd")]
    figure = plots.sinusoid_tasks(runs, num_tasks=2)
    assert len(figure.axes) == 4
    for axes in figure.axes:
        # before and after each of five steps, the truth, and the support
        assert len(axes.lines) == 8
        assert len(axes.lines[-1].get_xdata()) == 10
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:4] == [
        "truth",
        "support",
        "before",
        "step 1",
    ]
    _draw(figure)


def test_the_truth_passes_through_the_support(trained) -> None:
    figure = plots.sinusoid_tasks([trained()], num_tasks=1)
    *_, truth, support = figure.axes[0].lines
    x, y = np.asarray(support.get_xdata()), np.asarray(support.get_ydata())
    assert np.interp(x, truth.get_xdata(), truth.get_ydata()) == pytest.approx(y, abs=0.01)


def test_the_same_figures_give_the_same_file_with_text_as_text(trained) -> None:
    first, second = (
        plots.figure_bytes(plots.learning_curves([trained()]), "svg") for _ in range(2)
    )
    assert first == second
    assert b">outer iteration</text>" in first


def test_the_page_escapes_titles_and_figures(trained, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_demo_page(page, [trained()], published={"my-run": "<b>0.62"}, command="alfa <x>")
    text = page.read_text()
    assert "&lt;b&gt;0.62" in text
    assert "alfa &lt;x&gt;" in text
    assert (tmp_path / "tasks.png").is_file()
