"""The markup of the page: the macros of ``static/page.html``, and the geometry of its charts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np

from alfa.serve import _limits

# The chart of losses: width, base line, and height; and the number of bars that all have a label.
_WIDTH, _BASE, _HEIGHT, _MAX_LABELED = 320, 102, 84, 8
# The panel of a chart of rates.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 312, 8, 98


def render(part: str, *arguments: Any) -> str:
    """Render a part of the page, which is a macro of the template."""
    return str(getattr(_template().module, part)(*arguments))


def at_turn(turn: int, markup: str) -> str:
    """Number the state that the markup shows; the browser keeps the latest."""
    return f'<div data-turn="{turn}">{markup}</div>'


def static(name: str) -> str:
    """The content of a static file."""
    return (files("alfa.serve") / "static" / name).read_text(encoding="utf-8")


def script(name: str) -> str:
    """The script of a widget, after the functions that all share."""
    return f"{static('common.js')}\n{static(f'{name}.js')}"


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        # Successive hues are far apart.
        "hue": lambda number: round(number * 137.508 + 75) % 360,
        "percent": _percent,
        "px": "{:.1f}".format,
        "sentence": _sentence,
        "short": _short,
    }
    environment.globals |= {
        "layer_color": _layer_color,
        "limits": _limits,
        "loss_bars": _loss_bars,
        "rate_lines": _rate_lines,
    }
    return environment.from_string(static("page.html"))


def _percent(probability: float) -> str:
    if 0.0005 < probability < 0.9995:
        return f"{probability:.1%}".replace("%", " %")
    return "> 99.9 %" if probability > 0.5 else "< 0.1 %"


def _sentence(text: str) -> str:
    """An error message with a capital letter."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 0.1 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.001 else f"{'-' if value < 0 else ''}<0.001"


def _layer_color(number: int, count: int) -> str:
    """From the first layer to the last: blue, green, yellow, red."""
    return f"hsl({250 - 245 * number / max(1, count - 1):.0f} 62% 52%)"


def _loss_bars(losses: Sequence[float], num_classes: int) -> dict[str, Any]:
    """A bar for the loss before the first step, and one after each.

    The scale includes the loss of guessing, or a tiny loss would look large.
    """
    guess = float(np.log(num_classes))
    unit = _HEIGHT / max(*losses, guess)
    pitch = _WIDTH / len(losses)
    bars = []
    for number, loss in enumerate(losses):
        height, middle = max(1.5, unit * loss), (number + 0.5) * pitch
        bars.append(
            {
                "name": "before" if number == 0 else f"step {number}",
                "loss": loss,
                "middle": middle,
                "x": middle - 0.36 * pitch,
                "y": _BASE - height,
                "width": 0.72 * pitch,
                "height": height,
                "is_labeled": len(losses) <= _MAX_LABELED or number in (0, len(losses) - 1),
            }
        )
    return {"bars": bars, "guess": guess, "guess_y": _BASE - unit * guess}


def _rate_lines(values: np.ndarray, neutral: float) -> dict[str, Any]:
    """The lines of a panel, one for each layer, with the neutral rate in its range."""
    from matplotlib.ticker import MaxNLocator

    num_steps = len(values)
    low, high = min(float(values.min()), neutral), max(float(values.max()), neutral)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    x = np.linspace(_LEFT, _RIGHT, num_steps) if num_steps > 1 else [(_LEFT + _RIGHT) / 2]

    def y(value: Any) -> Any:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low)

    ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    return {
        "ticks": [(tick, y(tick)) for tick in ticks],
        "neutral_y": y(neutral),
        "steps": [(step + 1, x[step]) for step in range(0, num_steps, -(-num_steps // 10))],
        "lines": [
            {"rates": column.tolist(), "points": list(zip(x, y(column), strict=True))}
            for column in values.T
        ],
    }
