"""Charts as SVG, written by hand: matplotlib's settings are shared between threads, and many
people may look at the same time. Colours come from the page's style, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

# More than so many layers are told apart by pointing at them, not by a legend.
_MAX_NAMED = 12
# Bars that are wide enough for a number above each.
_MAX_NUMBERED = 8
_WIDTH, _HEIGHT = 320, 120


def loss_chart(losses: Sequence[float], *, num_classes: int) -> str:
    """A bar for the loss before the first step, and one after each.

    The scale reaches to what guessing would give, or a loss of nearly nothing would look large.

    Args:
        losses: before every step, and after the last.
        num_classes: that are told apart.
    """
    guessing = float(np.log(num_classes))
    top = max(*losses, guessing)
    pitch, base = _WIDTH / len(losses), 102
    line = base - 84 * guessing / top
    label = f"guessing: {_short(guessing)}"
    parts = [
        f'<line class="guess" x1="0" x2="{_WIDTH}" y1="{line:.1f}" y2="{line:.1f}"/>'
        f'<text class="axis left" x="{_WIDTH}" y="{line - 4:.1f}">{label}</text>'
    ]
    for number, loss in enumerate(losses):
        height = max(1.5, 84 * loss / top)
        middle = (number + 0.5) * pitch
        numbered = len(losses) <= _MAX_NUMBERED or number in (0, len(losses) - 1)
        value = f'<text x="{middle:.1f}" y="{base - 4 - height:.1f}">{_short(loss)}</text>'
        name = "before" if number == 0 else f"step {number}"
        parts.append(
            f"<g><title>{name}: {_short(loss)}</title>"
            f'<rect x="{middle - 0.36 * pitch:.1f}" y="{base - height:.1f}" '
            f'width="{0.72 * pitch:.1f}" height="{height:.1f}" rx="2"/>{value if numbered else ""}'
            f'<text class="axis" x="{middle:.1f}" y="116">{name if numbered else ""}</text></g>'
        )
    label = f"Loss before learning {_short(losses[0])}, after it {_short(losses[-1])}"
    return (
        f'<svg class="alfa-chart alfa-bars" role="img" aria-label="{label}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts)}</svg>'
    )


def rates_chart(rates: dict[str, Any]) -> str:
    """Alpha and beta of every step, a line for each layer, and which line is which."""
    layers = rates["layers"]
    if not len(rates["alpha"]):
        return '<p class="alfa-note">No step was taken, so no rate was used.</p>'
    panels = "".join(
        f"<figure><figcaption>{title}</figcaption>{_lines(rates[key], layers, zero)}</figure>"
        for key, title, zero in (
            ("alpha", "<b>&alpha;</b> how far each layer moves, step by step", 0.0),
            ("beta", "<b>&beta;</b> how much of its weights it keeps", 1.0),
        )
    )
    if len(layers) <= _MAX_NAMED:
        named = [
            f'<span><i style="background:{_color(number, len(layers))}"></i>{escape(name)}</span>'
            for number, name in enumerate(layers)
        ]
        legend = "".join(named)
    else:
        colors = ", ".join(_color(number, 9) for number in range(9))
        legend = (
            f'<span>first layer</span><i class="scale" style="background:linear-gradient('
            f'90deg, {colors})"></i><span>last; point at a line for its name</span>'
        )
    return f'<div class="alfa-rates">{panels}</div><div class="alfa-legend">{legend}</div>'


def _lines(values: np.ndarray, layers: Sequence[str], zero: float) -> str:
    """One panel; a thin line marks the rate that changes nothing."""
    num_steps = len(values)
    low, high = min(float(values.min()), zero), max(float(values.max()), zero)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    left, right, above, below = 46, _WIDTH - 8, 8, 98

    def x(step: int) -> float:
        return left + (right - left) * (step / max(1, num_steps - 1) if num_steps > 1 else 0.5)

    def y(value: float) -> float:
        return below - (below - above) * (value - low) / (high - low)

    parts = [
        f'<line class="grid" x1="{left}" x2="{right}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text class="axis left" x="{left - 6}" y="{y(v) + 3:.1f}">{_short(v)}</text>'
        for v in _ticks(low, high)
    ]
    parts.append(
        f'<line class="zero" x1="{left}" x2="{right}" y1="{y(zero):.1f}" y2="{y(zero):.1f}"/>'
    )
    for step in _marked(num_steps):
        parts.append(f'<text class="axis" x="{x(step):.1f}" y="114">{step + 1}</text>')
    for number, name in enumerate(layers):
        column = values[:, number]
        color = _color(number, len(layers))
        points = " ".join(f"{x(step):.1f},{y(float(v)):.1f}" for step, v in enumerate(column))
        dots = "".join(
            f'<circle cx="{x(step):.1f}" cy="{y(float(v)):.1f}" r="2.2"/>'
            for step, v in enumerate(column)
        )
        parts.append(
            f'<g style="stroke:{color};fill:{color}"><title>{escape(name)}: '
            f"{', '.join(_short(float(v)) for v in column)}</title>"
            f'<polyline points="{points}"/>{dots}</g>'
        )
    return (
        f'<svg class="alfa-chart alfa-lines" role="img" aria-label="Rates over '
        f'{num_steps} steps" viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts)}</svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """Three to five round numbers within a range."""
    rough = (high - low) / 4
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(float(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [number * step for number in range(first, last + 1)]


def _marked(num_steps: int) -> range:
    """The steps that are numbered below a panel."""
    return range(0, num_steps, max(1, -(-num_steps // 10)))


def _color(number: int, count: int) -> str:
    """From the first layer to the last: blue, green, yellow, red."""
    share = number / max(1, count - 1)
    return f"hsl({250 - 245 * share:.0f} 62% 52%)"


def _short(value: float) -> str:
    """A number in a few characters."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 0.1 or value == 0:
        return f"{value:.2f}"
    if abs(value) >= 0.001:
        return f"{value:.3f}"
    return f"{'&minus;' if value < 0 else ''}&lt;0.001"
