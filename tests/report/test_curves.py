"""Learning curves as SVG."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from alfa.report.learning import Curve, draw_curves, nice_ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (39.2, 59.9, [35, 40, 45, 50, 55, 60]),
        (0.011, 0.042, [0.01, 0.02, 0.03, 0.04, 0.05]),
        (5, 5, [5, 6, 7, 8, 9, 10]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0.1, 0.1 + 1e-17, [0.1, 0.12, 0.14, 0.16, 0.18, 0.2]),
        (0.1, 0.3, [0.1, 0.15, 0.2, 0.25, 0.3]),
        (0, 1e-13, [0, 2e-14, 4e-14, 6e-14, 8e-14, 1e-13]),
    ],
)
def test_ticks_are_round_and_enclose_the_range(low, high, ticks) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("last", "ticks"),
    [
        (1, [0, 1]),
        (2, [0, 1, 2]),
        (12, [0, 5, 10, 15]),
        (50_000, [0, 10_000, 20_000, 30_000, 40_000, 50_000]),
    ],
)
def test_whole_numbers_have_whole_ticks(last, ticks) -> None:
    assert nice_ticks(0, last, whole=True) == ticks


def svg_of(curves: list[Curve]) -> ET.Element:
    text = str(draw_curves(curves, x_title="iterations", y_title="accuracy <&>"))
    figure = ET.fromstring(text)
    found = figure.find("div/svg")
    assert found is not None
    return found


def test_points_lie_in_the_frame_and_higher_is_further_up() -> None:
    svg = svg_of([Curve("a", ((0, 10.0), (50, 20.0), (100, 40.0)))])
    line = svg.find("polyline")
    assert line is not None
    points = [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert all(0 <= x <= 640 and 0 <= y <= 260 for x, y in points)


def test_a_single_point_is_a_dot_and_titles_are_escaped() -> None:
    svg = svg_of([Curve("<script>", ((5, 1.0),))])
    assert svg.find("circle") is not None
    assert svg.attrib["aria-label"] == "accuracy <&>"
    assert "<script>" not in str(
        draw_curves([Curve("<script>", ((5, 1.0),))], x_title="", y_title="")
    )


def test_24_curves_have_different_styles() -> None:
    svg = svg_of([Curve(str(n), ((0, 0.0), (1, float(n)))) for n in range(24)])
    classes = [line.attrib["class"] for line in svg.findall("polyline")]
    assert len(set(classes)) == 24


def test_a_figure_without_points_is_empty() -> None:
    assert draw_curves([], x_title="", y_title="") == ""
    assert draw_curves([Curve("a", ())], x_title="", y_title="") == ""
    assert draw_curves([Curve("a", ((1, math.nan),))], x_title="", y_title="") == ""


def test_points_that_are_not_finite_are_omitted() -> None:
    svg = svg_of([Curve("a", ((0, 1.0), (1, math.inf), (2, 3.0))), Curve("b", ())])
    (line,) = svg.findall("polyline")
    assert len(line.attrib["points"].split()) == 2


def losses(values: list[float], **options) -> str:
    curve = Curve("a", tuple(enumerate(values)))
    return str(draw_curves([curve], x_title="x", y_title="loss", **options))


@pytest.mark.parametrize("count", [12, 40])
def test_outliers_do_not_flatten_the_curves(count) -> None:
    values = [1 + 0.01 * number for number in range(count)]
    values[7] = values[8] = 6_000_000.0
    text = losses(values, explodes=True)
    assert re.search(r"<figcaption>loss \(cut off at 1\.\d+; maximum 6e\+06\)<", text)
    assert "e+06</text>" not in text
    assert "cut off" not in losses(values)


@pytest.mark.parametrize(
    "values", [[20.0, 70.0], [3.0, 2.0, 1.0, 0.5] * 10, [4.0] * 30, [4.0] * 30 + [5.0], [0.0] * 9]
)
def test_ordinary_losses_are_all_shown(values) -> None:
    assert "cut off" not in losses(values, explodes=True)


def test_large_numbers_are_readable() -> None:
    text = str(draw_curves([Curve("a", ((0, 0.0), (1, 50_000.0)))], x_title="x", y_title="loss"))
    assert ">50,000<" in text
