"""The charts of the page are well-formed SVG."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from alfa.serve._html import render


def _parsed(text: str) -> ElementTree.Element:
    # Convert HTML entities, which XML does not define.
    named = re.sub(r"&(?!lt;|gt;|amp;|quot;)(\w+);", lambda m: html.unescape(m[0]), text)
    return ElementTree.fromstring(f"<div>{named}</div>")


@pytest.mark.parametrize("num_steps", [0, 1, 5, 40])
def test_every_loss_has_a_bar(num_steps: int) -> None:
    losses = [2.0 / (step + 1) for step in range(num_steps + 1)]
    chart = _parsed(render("loss_chart", losses, 3))
    bars = list(chart.iter("rect"))
    assert len(bars) == num_steps + 1
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights == sorted(heights, reverse=True)


def test_tiny_losses_have_minimal_bars() -> None:
    bars = list(_parsed(render("loss_chart", [3e-8, 5e-8, 0.0], 3)).iter("rect"))
    assert {bar.attrib["height"] for bar in bars} == {"1.5"}


@pytest.mark.parametrize(("num_steps", "num_layers"), [(1, 1), (5, 10), (30, 60)])
def test_every_layer_has_a_line(num_steps: int, num_layers: int) -> None:
    rng = np.random.default_rng(0)
    shape = (num_steps, num_layers)
    layers = tuple(f"layer<{number}>" for number in range(num_layers))
    rates = {"layers": layers, "alpha": rng.normal(size=shape), "beta": np.ones(shape)}
    chart = _parsed(render("rates_chart", rates))
    assert len(list(chart.iter("polyline"))) == 2 * num_layers
    titles = [title.text or "" for title in chart.iter("title")]
    assert titles[0].startswith("layer<0>: ")


def test_zero_steps_have_no_chart() -> None:
    rates = {"layers": ("a",), "alpha": np.empty((0, 1)), "beta": np.empty((0, 1))}
    assert "There were no steps" in render("rates_chart", rates)
