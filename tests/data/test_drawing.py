"""Drawings as inputs of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alfa.data import CHARACTER_EXTENT, Strokes, draw
from alfa.data._drawing import MAX_POINTS
from alfa.errors import DataError

CROSS = [[[0.2, 0.2], [0.8, 0.8]], [[0.8, 0.2], [0.2, 0.8]]]


def _moved(strokes: list[Any], scale: float, shift: float) -> list[Any]:
    return [[[scale * x + shift, scale * y + shift] for x, y in stroke] for stroke in strokes]


def test_ink_is_centered_and_dark_on_white() -> None:
    pixels = draw(CROSS, size=56, dark=True)
    assert pixels.dtype == np.uint8
    assert pixels[0, 0] == 255
    assert pixels[28, 28] < 40
    rows, columns = np.nonzero(pixels < 128)
    for places in (rows, columns):
        assert (places.min() + places.max()) / 2 == pytest.approx(27.5, abs=0.6)
        # The path has the extent of the training characters, plus the line width.
        extent = (places.max() - places.min() + 1) / 56
        assert CHARACTER_EXTENT <= extent <= CHARACTER_EXTENT + 0.1
    assert (draw(CROSS, size=56, dark=False) == 255 - pixels).all()


def test_amount_of_ink_matches_the_training_characters() -> None:
    characters = Strokes(num_classes=50, num_examples=2).images().images
    usual = 255 - characters.reshape(100, -1).mean(1)
    ink = 255 - draw(CROSS, size=28, dark=True).mean()
    assert usual.min() < ink < usual.max()


def test_size_and_position_do_not_matter() -> None:
    pixels = draw(CROSS, size=28, dark=True)
    for scale, shift in ((0.1, 0.85), (40.0, -300.0)):
        again = draw(_moved(CROSS, scale, shift), size=28, dark=True)
        assert np.abs(pixels.astype(int) - again).max() <= 1


def test_batches_do_not_change_a_long_line() -> None:
    way = [[[x, np.sin(9 * x)] for x in np.linspace(0, 1, 2_000)]]
    coarse = [[[x, np.sin(9 * x)] for x in np.linspace(0, 1, 400)]]
    fine = draw(way, size=28, dark=True).astype(int)
    assert np.abs(fine - draw(coarse, size=28, dark=True)).max() <= 12


def test_a_dot_is_a_drawing() -> None:
    pixels = draw([[[0.9, 0.1]]], size=28, dark=True)
    rows, columns = np.nonzero(pixels < 128)
    assert 0 < len(rows) <= 12
    assert rows.mean() == columns.mean() == pytest.approx(13.5)


@pytest.mark.parametrize(
    ("strokes", "reason"),
    [
        ([], "the pad is empty"),
        ([[]], "the pad is empty"),
        (None, "is invalid"),
        ("[[1, 2]]", "is invalid"),
        ([1, 2], "is invalid"),
        ([[1, 2]], "is invalid"),
        ([[[1, 2, 3]]], "is invalid"),
        ([[[1, 2], [3]]], "is invalid"),
        ([[[1, float("nan")]]], "is invalid"),
        ([[[1e300, 1]]], "is invalid"),
        ([[[10**400, 1]]], "is invalid"),
        ([[["a", "b"]]], "is invalid"),
        ([[{"x": 1}]], "is invalid"),
        ([[[0.0, 0.0]] * (MAX_POINTS + 1)], "more than the limit of 5,000"),
    ],
)
def test_invalid_drawings_raise(strokes: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        draw(strokes, size=28, dark=True)
