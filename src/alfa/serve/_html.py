"""Rendering of the macros in ``static/page.html``, and the geometry of their charts."""

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np

from alfa.serve import _limits as limits

# The chart of losses: width, baseline, height, and the number of bars for which all labels fit.
_WIDTH, _BASELINE, _HEIGHT, _MAX_LABELED = 320, 102, 84, 8
# The area of a chart of rates.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 312, 8, 98


def render(part: str, *arguments: Any) -> str:
    """Render a macro of the template."""
    return str(getattr(_template().module, part)(*arguments))


def at_turn(turn: int, markup: str) -> str:
    """Number the state that the markup shows; the browser shows the latest one."""
    return f'<div data-turn="{turn}">{markup}</div>'


def static(name: str) -> str:
    """Load the text of a static file."""
    return (files("alfa.serve") / "static" / name).read_text(encoding="utf-8")


def script(name: str) -> str:
    """Load the script of a widget together with the common functions."""
    return f"{static('common.js')}\n{static(f'{name}.js')}"


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": _percent, "sentence": _sentence, "short": _short}
    environment.filters["px"] = "{:.1f}".format
    # Hues of successive classes differ strongly.
    environment.filters["hue"] = lambda number: round(number * 137.508 + 75) % 360
    environment.globals |= {"layer_color": _layer_color, "limits": limits}
    environment.globals |= {"loss_bars": _loss_bars, "rate_lines": _rate_lines}
    return environment.from_string(static("page.html"))


def _percent(probability: float) -> str:
    if 0.0005 < probability < 0.9995:
        return f"{100 * probability:.1f} %"
    return "> 99.9 %" if probability > 0.5 else "< 0.1 %"


def _sentence(text: str) -> str:
    """Capitalize an error message, unless it starts with a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 0.1 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.001 else f"{'-' if value < 0 else ''}<0.001"


def _layer_color(number: int, count: int) -> str:
    """Return a color between blue for the first layer and red for the last."""
    return f"hsl({250 - 245 * number / max(1, count - 1):.0f} 62% 52%)"


def _loss_bars(losses: Sequence[float], num_classes: int) -> dict[str, Any]:
    """Compute a bar for the loss before the first step and after each step.

    The scale includes the chance loss, so that a tiny loss looks small.
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
                "y": _BASELINE - height,
                "width": 0.72 * pitch,
                "height": height,
                "is_labeled": len(losses) <= _MAX_LABELED or number in (0, len(losses) - 1),
            }
        )
    return {"bars": bars, "guess": guess, "guess_y": _BASELINE - unit * guess}


def _rate_lines(values: np.ndarray, neutral: float) -> dict[str, Any]:
    """Compute a line for each layer; the vertical range includes the neutral rate."""
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
