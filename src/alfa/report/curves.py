"""Learning curves as SVG that takes its colours from the page, in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 26, 10, 34
# The page defines so many colours; with more curves they come again, in other dashes.
NUM_COLORS, NUM_DASHES = 6, 4
# How many times further from the lowest than three quarters of all a loss may be, to be shown.
_FAR = 10


@dataclass(frozen=True)
class Curve:
    """A line of a figure.

    Attributes:
        title: in the legend.
        points: x and y, in the order of x.
    """

    title: str
    points: tuple[tuple[float, float], ...]


def draw(curves: Sequence[Curve], *, x_title: str, y_title: str, explodes: bool = False) -> Markup:
    """A figure with axes and a legend, or nothing where there are no points.

    Args:
        curves: the lines.
        x_title: below the figure.
        y_title: above it.
        explodes: single values may be far too high, as losses may; those are cut off.
    """
    # A validation that was not finite has no place in a figure.
    finite = [
        replace(curve, points=tuple(p for p in curve.points if all(map(math.isfinite, p))))
        for curve in curves
    ]
    curves = [curve for curve in finite if curve.points]
    if not curves:
        return Markup()
    points = [point for curve in curves for point in curve.points]
    last = max(x for x, _ in points)
    highest = max(y for _, y in points)
    high = usual_high([y for _, y in points]) if explodes else highest
    ticks = nice_ticks(min(y for _, y in points), high)
    bottom, top = ticks[0], ticks[-1]

    def place(x: float, y: float) -> str:
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / max(last, 1e-9)
        down = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (top - min(y, top)) / (top - bottom)
        return f"{across:.1f},{down:.1f}"

    parts = []
    for tick in ticks:
        left, level = place(0, tick).split(",")
        right = place(last, tick).split(",")[0]
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{level}" y2="{level}"/>')
        place_of_text = f'x="{_LEFT - 6}" y="{level}" dy="4" text-anchor="end"'
        parts.append(f'<text class="tick" {place_of_text}>{tick:,g}</text>')
    # Iterations are whole numbers.
    for tick in nice_ticks(0, last, whole=True):
        if tick <= last:
            across = place(tick, bottom).split(",")[0]
            parts.append(
                f'<text class="tick" x="{across}" y="{_HEIGHT - 16}" text-anchor="middle">'
                f"{tick:,.0f}</text>"
            )
    parts.append(
        f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 2}" text-anchor="end">'
        f"{escape(x_title)}</text>"
    )
    for number, curve in enumerate(curves):
        line = " ".join(place(x, y) for x, y in curve.points)
        parts.append(f'<polyline class="{_class(number)}" points="{line}"/>')
        for x, y in curve.points if len(curve.points) == 1 else ():
            across, down = place(x, y).split(",")
            parts.append(f'<circle class="{_class(number)}" cx="{across}" cy="{down}" r="3"/>')
    legend = "".join(
        f'<span><svg width="22" height="8" aria-hidden="true"><line class="{_class(number)}" '
        f'x1="1" x2="21" y1="4" y2="4"/></svg> {escape(curve.title)}</span>'
        for number, curve in enumerate(curves)
    )
    cut = f" (cut off at {top:,g}; the highest is {highest:,.4g})" if highest > top else ""
    return Markup(
        f'<figure class="curves"><figcaption>{escape(y_title)}{cut}</figcaption>'
        f'<div class="scroll"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(y_title)}">{"".join(parts)}</svg></div>'
        f'<div class="legend">{legend}</div></figure>'
    )


def usual_high(values: Sequence[float]) -> float:
    """Up to where losses are shown: a few that explode must not flatten all others."""
    ordered = sorted(values)
    low, usual = ordered[0], ordered[math.ceil(0.75 * (len(ordered) - 1))]
    limit = low + _FAR * max(usual - low, 0.1 * abs(usual))
    return max(value for value in ordered if value <= limit)


def _class(number: int) -> str:
    dash = number // NUM_COLORS % NUM_DASHES
    return f"curve c{number % NUM_COLORS}{f' d{dash}' if dash else ''}"


def nice_ticks(low: float, high: float, *, count: int = 5, whole: bool = False) -> list[float]:
    """Round numbers that enclose a range.

    Args:
        low: its lower end.
        high: its upper end.
        count: about how many steps there are.
        whole: they are whole numbers.
    """
    width = high - low
    # What differs by rounding only is the same.
    step = width / count if width > 1e-9 * abs(high) else abs(high) or 1.0
    step = max(step, 1.0) if whole else step
    unit = 10.0 ** math.floor(math.log10(step))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(unit * factor for factor in factors if unit * factor >= step * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    # Not 0.30000000000000004
    digits = 12 - math.floor(math.log10(step))
    return [round(number * step, digits) for number in range(first, last + 1)]
