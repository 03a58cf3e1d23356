"""Figures of a report, drawn with matplotlib."""

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from alfa.data import Sinusoids
from alfa.report.learning import Points, usual_high
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
# Further curves repeat the colors with other dashes, and then with other markers.
_DASHES = ("-", "--", ":")
_MARKERS = (None, "o", "s", "^")
# The maximum length of a name in a legend.
_MAX_NAME = 40


@mpl.rc_context(STYLE)
def figure_bytes(figure: Figure, kind: str) -> bytes:
    """Save a figure as a ``"svg"``, ``"png"``, or ``"pdf"`` file."""
    buffer = io.BytesIO()
    # Without a date, equal figures have equal files.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {"Software": None})
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


@mpl.rc_context(STYLE)
def learning_curves(runs: Sequence[TrainedRun]) -> Figure:
    """Plot the validation loss against outer iterations, with a dot for the tested model."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes = figure.subplots()
    first_losses = []
    for run, color in zip(runs, itertools.cycle(COLORS), strict=False):
        records = [record for record in run.metrics if record["val_loss"] is not None]
        iterations = [record["iteration"] for record in records]
        losses = [record["val_loss"] for record in records]
        first_losses.append(losses[0])
        axes.plot(iterations, losses, color=color, label=run.title, linewidth=1.6)
        best = run.result["best_iteration"]
        axes.plot(best, run.result["val_loss"], "o", color=color, markersize=5)
    # One validation task on which adaptation diverges would flatten the curves.
    axes.set(yscale="log", ylim=(None, 1.3 * max(first_losses)), xlim=(0, None))
    axes.set(xlabel="outer iteration", ylabel="validation loss")
    axes.legend(title="dot: tested model", title_fontsize=8)
    return figure


@mpl.rc_context(STYLE)
def metric_curves(curves: Mapping[str, Points], *, title: str, explodes: bool = False) -> Figure:
    """Plot a metric of validations against outer iterations.

    A curve whose only point is at iteration 0, from a run with nothing to train, becomes a
    horizontal line. With `explodes`, outliers above the usual losses are cut off.
    """
    size = (7.2, max(3.8, 0.4 + 0.2 * len(curves)))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    styles = itertools.cycle(itertools.product(_MARKERS, _DASHES, COLORS))
    for number, (points, style) in enumerate(zip(curves.values(), styles, strict=False)):
        _draw_curve(axes, points, *style, label=f"run {number}")
    values = [y for points in curves.values() for _, y in points]
    highest, high = max(values), usual_high(values)
    if explodes and high < highest:
        axes.set_ylim(top=high)
        title += f" (cut off; maximum {highest:,.4g})"
    axes.set(xlabel="outer iteration", ylabel=title, xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.grid(axis="y", linewidth=0.4, alpha=0.6)
    legend = figure.legend(loc="outside right upper", handlelength=3)
    # Set afterwards, because matplotlib omits labels that start with an underscore.
    for text, (name, points) in zip(legend.get_texts(), curves.items(), strict=True):
        # The end of a long name is more informative than its start.
        name = name if len(name) <= _MAX_NAME else f"\N{HORIZONTAL ELLIPSIS}{name[-_MAX_NAME:]}"
        text.set_parse_math(False)
        text.set_text(name + (" (nothing to train)" if _is_untrained(points) else ""))
    return figure


def _is_untrained(points: Points) -> bool:
    return [iteration for iteration, _ in points] == [0]


def _draw_curve(
    axes: Axes, points: Points, marker: str | None, dash: str, color: str, *, label: str
) -> None:
    iterations, values = zip(*points, strict=True)
    style: dict[str, Any] = {"color": color, "linestyle": dash, "linewidth": 1.6, "label": label}
    if _is_untrained(points):
        axes.axhline(values[0], marker=marker, **style)
    else:
        # A line with one point is invisible.
        marker = marker or ("o" if len(points) == 1 else None)
        axes.plot(iterations, values, marker=marker, markersize=4, **style)


@mpl.rc_context(STYLE)
def sinusoid_tasks(runs: Sequence[TrainedRun], *, num_tasks: int = 3, first: int = 0) -> Figure:
    """Plot the predictions of all runs after 0, 1, ... inner steps on the same test tasks."""
    grid = np.linspace(-5, 5, 200)
    max_steps = max(run.learner.num_steps for run in runs)
    seed: int = runs[0].result["config"]["seed"]
    figure = Figure(figsize=(3.3 * num_tasks, 2.5 * len(runs)), layout="constrained")
    panels = figure.subplots(len(runs), num_tasks, sharex=True, sharey="col", squeeze=False)
    for run, row in zip(runs, panels, strict=True):
        if not isinstance(run.tasks, Sinusoids):
            raise TypeError("`runs` must be trained on sinusoid tasks")
        episode = run.tasks.episode(first, num_tasks=num_tasks, split="test", seed=seed)
        curves, _ = run.tasks.draw(first, num_tasks=num_tasks, split="test", seed=seed)
        episode = episode.to("cpu", run.learner.dtype)
        support = episode.support_x, episode.support_y
        x = np.tile(grid, (num_tasks, 1))
        inputs = torch.from_numpy(x).to(run.learner.dtype).unsqueeze(-1)
        for step in range(run.learner.num_steps + 1):
            adapted = run.learner.adapt(*support, num_steps=step, order="none")
            with torch.no_grad():
                predictions = adapted.predict(inputs)[..., 0].numpy()
            width = 1.8 if step == run.learner.num_steps else 1
            for axes, prediction in zip(row, predictions, strict=True):
                axes.plot(grid, prediction, color=_color(step, max_steps), linewidth=width)
        truth = curves(x)
        for task, axes in enumerate(row):
            axes.plot(grid, truth[task], color="black", linewidth=1, linestyle=(0, (4, 2)))
            axes.plot(*(v[task, :, 0] for v in support), "o", color="black", markersize=4)
            axes.set_title(f"{run.title}, unseen task {task + 1}")
    handles = [
        Line2D([], [], color="black", linestyle=(0, (4, 2)), linewidth=1, label="truth"),
        Line2D([], [], color="black", marker="o", linestyle="", markersize=4, label="support"),
    ]
    for step in range(max_steps + 1):
        label = f"step {step}" if step else "before"
        handles.append(Line2D([], [], color=_color(step, max_steps), label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _color(step: int, last: int) -> tuple[float, float, float, float]:
    return mpl.colormaps["viridis_r"](0.05 + 0.9 * step / max(last, 1))
