"""Learning curves, read from run folders, and drawn as SVG with the colors of a page's theme."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from alfa.errors import CheckpointError
from alfa.report.output import render_template
from alfa.runs import Run

Points = tuple[tuple[int, float], ...]

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 614, 10, 226
# Classes of the page's style sheet: six colors, and then the same colors with three other dashes.
_STYLES = [f"curve c{color}{dash}" for dash in ("", " d1", " d2", " d3") for color in range(6)]
# Losses are shown up to this multiple of the distance from the lowest to the third quartile.
_MAX_RELATIVE_LOSS = 10


@dataclass(frozen=True)
class Metric:
    """A metric that every validation records."""

    title: str  # name and unit
    scale: float = 1.0  # factor from the recorded value to the unit
    explodes: bool = True  # outliers are possible, and are cut off


# Ordered by preference.
METRICS: Mapping[str, Metric] = {
    "val_metric": Metric("validation metric", explodes=False),
    "val_accuracy": Metric("validation accuracy, %", 100.0, explodes=False),
    "val_loss": Metric("validation loss"),
    "train_loss": Metric("training loss"),
}


def read_curves(
    paths: Sequence[Path], *, metric: str | None = None
) -> tuple[dict[str, Points], str]:
    """Read a metric of runs; return curves by unique names of the runs, and the metric's name.

    The default metric is the first of `METRICS` that all runs have. Raises CheckpointError if a
    folder is not a run, or has no finite value of the metric.
    """
    names = _unique_names(paths)
    found: dict[str, dict[str, Points]] = {}
    for name, path in names.items():
        run = Run.open(path)
        _ = run.experiment  # raises if the configuration is damaged
        found[name] = by_metric(run.metrics)
    shared = [name for name in METRICS if all(name in curves for curves in found.values())]
    # Every validation records val_loss, so the error below names a run without validations.
    chosen = metric or next(iter(shared), "val_loss")
    for name, curves in found.items():
        if chosen not in curves:
            reason = (
                f"only {', '.join(curves)}" if curves else "because no validation was finite so far"
            )
            hint = ", or choose another --metric" if shared else ""
            raise CheckpointError(f"{names[name]} has no {chosen}, {reason}; leave it out{hint}.")
    return {name: curves[chosen] for name, curves in found.items()}, chosen


def by_metric(records: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """Return the finite values of each metric, in the order of `METRICS`."""
    curves = {
        name: tuple(
            (int(record["iteration"]), metric.scale * record[name])
            for record in records
            if record.get(name) is not None and math.isfinite(record[name])
        )
        for name, metric in METRICS.items()
    }
    return {name: points for name, points in curves.items() if points}


def _unique_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Name folders by the fewest trailing parts of their paths that make the names unique."""
    # Different paths may lead to the same folder.
    folders: dict[str, Path] = {}
    for path in paths:
        folders.setdefault(os.path.realpath(path), path)
    unique = list(folders.values())
    parts = [Path(os.path.abspath(path)).parts for path in unique]
    length = 1
    while len({x[-length:] for x in parts}) < len(unique):
        length += 1
    return {"/".join(x[-length:]): path for x, path in zip(parts, unique, strict=True)}


@dataclass(frozen=True)
class Curve:
    """A curve of a figure, with its title in the legend; points are sorted by x."""

    title: str
    points: tuple[tuple[float, float], ...]


def draw_curves(
    curves: Sequence[Curve], *, x_title: str, y_title: str, explodes: bool = False
) -> Markup:
    """Draw curves with axes and a legend; return an empty string if no point is finite.

    With `explodes`, outliers above the usual losses are cut off.
    """
    finite = [(c.title, [p for p in c.points if all(map(math.isfinite, p))]) for c in curves]
    drawn = [(title, points) for title, points in finite if points]
    if not drawn:
        return Markup()
    xs, ys = zip(*(point for _, points in drawn for point in points), strict=True)
    last, highest = max(xs), max(ys)
    ticks = nice_ticks(min(ys), usual_high(ys) if explodes else highest)
    bottom, top = ticks[0], ticks[-1]

    def position(x: float, y: float) -> tuple[str, str]:
        across = _LEFT + (_RIGHT - _LEFT) * x / max(last, 1e-9)
        down = _TOP + (_BOTTOM - _TOP) * (top - min(y, top)) / (top - bottom)
        return f"{across:.1f}", f"{down:.1f}"

    # Iterations are integers.
    x_ticks = [tick for tick in nice_ticks(0, last, whole=True) if tick <= last]
    html = render_template(
        "curves.html",
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        x_title=x_title,
        y_title=y_title,
        x_ticks=[(position(tick, bottom)[0], f"{tick:,.0f}") for tick in x_ticks],
        y_ticks=[(position(0, tick)[1], f"{tick:,g}") for tick in ticks],
        curves=[
            (style, title, [position(x, y) for x, y in points])
            for style, (title, points) in zip(itertools.cycle(_STYLES), drawn, strict=False)
        ],
        cut=f" (cut off at {top:,g}; maximum {highest:,.4g})" if highest > top else "",
    )
    return Markup(html)


def usual_high(values: Sequence[float]) -> float:
    """Return the highest loss to show, so that outliers do not flatten the curves."""
    ordered = sorted(values)
    low, usual = ordered[0], ordered[math.ceil(0.75 * (len(ordered) - 1))]
    limit = low + _MAX_RELATIVE_LOSS * max(usual - low, 0.1 * abs(usual))
    return max(value for value in ordered if value <= limit)


def nice_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return round numbers that enclose a range; integers if `whole`."""
    if high - low <= 1e-9 * abs(high):
        # The values differ only by rounding.
        high = low + (abs(low) or 1.0)
    steps = [1, 2, 5, 10] if whole else [1, 2, 2.5, 5, 10]
    return list(MaxNLocator(5, steps=steps, integer=whole).tick_values(low, high))
