"""Learning curves as SVG, with colors from the page's light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from alfa.report.output import render_template

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 614, 10, 226
# The page's style sheet defines these; further curves repeat the colors with other dashes.
_NUM_COLORS, _NUM_DASHES = 6, 4
# Losses are shown up to this multiple of the distance from the lowest to the third quartile.
_MAX_RELATIVE_LOSS = 10


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
            (_css_class(number), title, [position(x, y) for x, y in points])
            for number, (title, points) in enumerate(drawn)
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


def _css_class(number: int) -> str:
    dash = number // _NUM_COLORS % _NUM_DASHES
    return f"curve c{number % _NUM_COLORS}{f' d{dash}' if dash else ''}"


def nice_ticks(low: float, high: float, *, count: int = 5, whole: bool = False) -> list[float]:
    """Return about `count` + 1 round numbers that enclose a range; integers if `whole`."""
    width = high - low
    # Values that differ only by rounding are equal.
    step = width / count if width > 1e-9 * abs(high) else abs(high) or 1.0
    step = max(step, 1.0) if whole else step
    unit = 10.0 ** math.floor(math.log10(step))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(unit * factor for factor in factors if unit * factor >= step * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    digits = 12 - math.floor(math.log10(step))  # avoids 0.30000000000000004
    return [round(number * step, digits) for number in range(first, last + 1)]
