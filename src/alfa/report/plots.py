"""The figures of a report; each function returns a matplotlib figure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from alfa.data import Sinusoids
from alfa.inner import Adapted
from alfa.report.curves import usual_high
from alfa.report.load import TrainedRun

STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "font.size": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "alfa",
}
COLORS = ("#4c566a", "#d1495b", "#00798c", "#edae49")
# With more curves than colours these come again, in other dashes, and then with other markers.
_DASHES = ("-", "--", ":")
_MARKERS = (None, "o", "s", "^")
# Characters of a name in a legend.
_LONGEST = 40


def learning_curves(runs: Sequence[TrainedRun]) -> Figure:
    """Validation loss against outer iterations."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        for run, color in zip(runs, itertools.cycle(COLORS), strict=False):
            records = [record for record in run.metrics if record["val_loss"] is not None]
            iterations = [record["iteration"] for record in records]
            losses = [record["val_loss"] for record in records]
            axes.plot(iterations, losses, color=color, label=run.title, linewidth=1.6)
            best = run.result["best_iteration"]
            axes.plot(best, run.result["val_loss"], "o", color=color, markersize=5)
        axes.set_yscale("log")
        # A single validation task whose adaptation explodes would squeeze the rest flat.
        axes.set_ylim(top=1.3 * max(_first_loss(run) for run in runs))
        axes.set_xlabel("outer iteration")
        axes.set_ylabel("validation loss")
        axes.set_xlim(left=0)
        axes.legend(title="dot: the model that is tested", title_fontsize=8)
        return figure


def metric_curves(
    curves: Mapping[str, Sequence[tuple[int, float]]], *, title: str, explodes: bool = False
) -> Figure:
    """A figure of validations against outer iterations, for one or more runs.

    Args:
        curves: of each run, iterations and figures; one at iteration 0 alone, where there is
            nothing to train, is drawn as a level.
        title: what the figures are.
        explodes: single values may be far too high, as losses may; those are cut off.
    """
    with mpl.rc_context(STYLE):
        size = (7.2, max(3.8, 0.4 + 0.2 * len(curves)))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        looks = itertools.cycle(itertools.product(_MARKERS, _DASHES, COLORS))
        for number, (points, look) in enumerate(zip(curves.values(), looks, strict=False)):
            _draw_curve(axes, points, *look, label=f"run {number}")
        highest = max(y for points in curves.values() for _, y in points)
        high = usual_high([y for points in curves.values() for _, y in points])
        if explodes and high < highest:
            axes.set_ylim(top=high)
            title += f" (cut off; the highest is {highest:,.4g})"
        axes.set_xlabel("outer iteration")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        axes.set_ylabel(title)
        axes.set_xlim(left=0)
        axes.grid(axis="y", linewidth=0.4, alpha=0.6)
        legend = figure.legend(loc="outside right upper", handlelength=3)
        # Afterwards, as matplotlib leaves out a label that begins with an underscore.
        for text, (name, points) in zip(legend.get_texts(), curves.items(), strict=True):
            text.set_parse_math(False)
            level = " (nothing to train)" if _is_level(points) else ""
            text.set_text(_short(name) + level)
        return figure


def _is_level(points: Sequence[tuple[int, float]]) -> bool:
    return [iteration for iteration, _ in points] == [0]


def _draw_curve(
    axes: Axes,
    points: Sequence[tuple[int, float]],
    marker: str | None,
    dash: str,
    color: str,
    *,
    label: str,
) -> None:
    iterations, figures = zip(*points, strict=True)
    look: dict[str, Any] = {"color": color, "linestyle": dash, "linewidth": 1.6, "label": label}
    if _is_level(points):
        axes.axhline(figures[0], marker=marker, **look)
    else:
        # A single validation has no line.
        marker = marker or ("o" if len(points) == 1 else None)
        axes.plot(iterations, figures, marker=marker, markersize=4, **look)


def _short(name: str) -> str:
    """The end of a name, which tells more than its beginning."""
    return name if len(name) <= _LONGEST else f"\N{HORIZONTAL ELLIPSIS}{name[-_LONGEST:]}"


def _first_loss(run: TrainedRun) -> float:
    return next(float(r["val_loss"]) for r in run.metrics if r["val_loss"] is not None)


def sinusoid_tasks(runs: Sequence[TrainedRun], *, num_tasks: int = 3, first: int = 0) -> Figure:
    """Unseen curves, the same for all, and what each method predicts after 0, 1, ... steps."""
    grid = np.linspace(-5, 5, 200)
    most_steps = max(run.learner.num_steps for run in runs)
    where = {"split": "test", "seed": runs[0].experiment.seed}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.3 * num_tasks, 2.5 * len(runs)), layout="constrained")
        panels = figure.subplots(len(runs), num_tasks, sharex=True, sharey="col", squeeze=False)
        for run, row in zip(runs, panels, strict=True):
            if not isinstance(run.tasks, Sinusoids):
                raise TypeError("only sinusoid tasks can be drawn as curves")
            episode = run.tasks.episode(first, num_tasks=num_tasks, **where)  # type: ignore[arg-type]
            curves, _ = run.tasks.draw(first, num_tasks=num_tasks, **where)  # type: ignore[arg-type]
            episode = episode.to("cpu", run.learner.dtype)
            x = np.tile(grid, (num_tasks, 1))
            truth = curves(x)
            inputs = torch.from_numpy(x).to(run.learner.dtype).unsqueeze(-1)
            for step in range(run.learner.num_steps + 1):
                adapted = run.learner.adapt(
                    episode.support_x, episode.support_y, num_steps=step, order="none"
                )
                is_last = step == run.learner.num_steps
                _draw_step(row, grid, adapted, inputs, _color(step, most_steps), is_last=is_last)
            for task, axes in enumerate(row):
                axes.plot(grid, truth[task], color="black", linewidth=1, linestyle=(0, (4, 2)))
                axes.plot(
                    episode.support_x[task, :, 0],
                    episode.support_y[task, :, 0],
                    "o",
                    color="black",
                    markersize=4,
                )
                axes.set_title(f"{run.title}, unseen task {task + 1}")
        _task_legend(figure, most_steps)
        return figure


def _color(step: int, last: int) -> tuple[float, float, float, float]:
    color: tuple[float, float, float, float] = mpl.colormaps["viridis_r"](
        0.05 + 0.9 * step / max(last, 1)
    )
    return color


def _draw_step(
    row: Sequence[Axes],
    grid: np.ndarray,
    adapted: Adapted,
    x: torch.Tensor,
    color: tuple[float, float, float, float],
    *,
    is_last: bool,
) -> None:
    with torch.no_grad():
        predictions = adapted.predict(x)[..., 0].numpy()
    for axes, prediction in zip(row, predictions, strict=True):
        axes.plot(grid, prediction, color=color, linewidth=1.8 if is_last else 1)


def _task_legend(figure: Figure, last: int) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="black", linestyle=(0, (4, 2)), linewidth=1, label="truth"),
        Line2D([], [], color="black", marker="o", linestyle="", markersize=4, label="support"),
    ]
    for step in range(last + 1):
        label = "before" if step == 0 else f"step {step}"
        handles.append(Line2D([], [], color=_color(step, last), label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
