"""From the way of a pen on the page to a picture like those that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# The hand that draws the generated characters draws these, too.
from alfa.data._strokes import _EXTENT as EXTENT
from alfa.data._strokes import Hand, _ink
from alfa.errors import DataError
from alfa.serve._limits import MAX_POINTS

# A line between the thinnest and the thickest of those characters.
_PEN = sum(Hand().pen) / 2
# Dots of a line for every pixel of its length, and how many are drawn at once: their distances to
# all pixels lie in memory.
_DOTS_PER_PIXEL, _DOTS_AT_ONCE = 2, 256


def draw(strokes: Any, *, size: int, dark: bool) -> np.ndarray:
    """A drawing, put in the middle and brought to the size of the training characters.

    Only the way of the pen counts: how large, where and with how thick a line somebody drew it
    makes no difference.

    Args:
        strokes: a list of strokes, each a list of points ``[right, down]`` of any scale, as a
            browser sent them.
        size: the side of the picture in pixels.
        dark: whether ink is dark on white, or light on black.

    Returns:
        Pixels, uint8 ``[size, size]``.

    Raises:
        DataError: this is no drawing, or one of far too many points.
    """
    ways = [_checked(stroke) for stroke in _listed(strokes)]
    if not ways:
        raise DataError("the pad is empty; draw something first.")
    points = np.concatenate(ways)
    if len(points) > MAX_POINTS:
        raise DataError(
            f"the drawing has {len(points):,} points, more than the {MAX_POINTS:,} that are "
            "allowed; clear the pad, and draw it with fewer lines."
        )
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max())
    # A single dot has a place, but no size.
    scale = EXTENT / extent if extent > 0 else 1.0
    middle = (low + high) / 2
    dots = np.concatenate([_dots(scale * (way - middle), size) for way in ways])
    # The nearest dot decides about a pixel, so that parts can be drawn one after the other.
    pixels = np.full((size, size), 255, np.uint8)
    for first in range(0, len(dots), _DOTS_AT_ONCE):
        part = _ink(dots[first : first + _DOTS_AT_ONCE], width=_PEN, size=size)
        np.minimum(pixels, part, out=pixels)
    return pixels if dark else 255 - pixels


def _listed(strokes: Any) -> Sequence[Any]:
    if not isinstance(strokes, list) or not all(isinstance(stroke, list) for stroke in strokes):
        raise DataError("this is not a drawing; clear the pad, and draw it again.")
    return [stroke for stroke in strokes if stroke]


def _checked(stroke: list[Any]) -> np.ndarray:
    """The points of a stroke, ``[point, 2]``."""
    try:
        points = np.asarray(stroke, np.float64)
    except (TypeError, ValueError, OverflowError):
        points = np.empty(0)
    # No screen is larger, and much larger numbers would end in no number at all.
    if points.ndim != 2 or points.shape[1] != 2 or not (np.abs(points) <= 1e6).all():
        raise DataError("this is not a drawing; clear the pad, and draw it again.")
    return points


def _dots(way: np.ndarray, size: int) -> np.ndarray:
    """Dots on the straight lines between points, so close that they look like one line."""
    lengths = np.sqrt((np.diff(way, axis=0) ** 2).sum(axis=1))
    counts = np.ceil(_DOTS_PER_PIXEL * size * lengths).astype(int)
    parts = [
        start + (end - start) * (np.arange(count) / count)[:, None]
        for start, end, count in zip(way, way[1:], counts, strict=False)
        if count
    ]
    return np.concatenate([*parts, way[-1:]])
