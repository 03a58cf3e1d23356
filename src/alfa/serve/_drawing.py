"""Turns the strokes of a pen into an image like those that a model was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from alfa.data import CHARACTER_EXTENT, DrawingStyle, render_strokes
from alfa.errors import DataError
from alfa.serve._limits import MAX_POINTS

# The mean line width of the generated characters.
_PEN_WIDTH = sum(DrawingStyle().pen) / 2
# Dots per pixel of length, and the number drawn at once, whose distances to all pixels are stored.
_DOTS_PER_PIXEL, _DOTS_AT_ONCE = 2, 256
_NOT_A_DRAWING = "this is not a drawing; clear the pad, and draw it again."


def draw(strokes: Any, *, size: int, dark: bool) -> np.ndarray:
    """Draw strokes in the center, in the size and line width of the training characters.

    Args:
        strokes: a list of strokes from a browser, each a list of points ``[right, down]`` of any
            scale.
        size: the side of the image in pixels.
        dark: whether ink is dark on white, or light on black.

    Returns:
        Pixels, uint8 ``[size, size]``.

    Raises:
        DataError: this is not a drawing, or has too many points.
    """
    if not isinstance(strokes, list) or not all(isinstance(stroke, list) for stroke in strokes):
        raise DataError(_NOT_A_DRAWING)
    paths = [_points(stroke) for stroke in strokes if stroke]
    if not paths:
        raise DataError("the pad is empty; draw something first.")
    points = np.concatenate(paths)
    if len(points) > MAX_POINTS:
        raise DataError(
            f"the drawing has {len(points):,} points, more than the {MAX_POINTS:,} that are "
            "allowed; clear the pad, and draw it with fewer lines."
        )
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max())
    # A single dot has no extent.
    scale = CHARACTER_EXTENT / extent if extent > 0 else 1.0
    center = (low + high) / 2
    dots = np.concatenate([_dots(scale * (path - center), size) for path in paths])
    # The nearest dot decides about a pixel, so dots can be drawn in parts.
    pixels = np.full((size, size), 255, np.uint8)
    for first in range(0, len(dots), _DOTS_AT_ONCE):
        part = render_strokes(dots[first : first + _DOTS_AT_ONCE], width=_PEN_WIDTH, size=size)
        np.minimum(pixels, part, out=pixels)
    return pixels if dark else 255 - pixels


def _points(stroke: list[Any]) -> np.ndarray:
    """The points of a stroke, ``[point, 2]``."""
    try:
        points = np.asarray(stroke, np.float64)
    except (TypeError, ValueError, OverflowError):
        points = np.empty(0)
    # Larger than any screen; much larger numbers would overflow.
    if points.ndim != 2 or points.shape[1] != 2 or not (np.abs(points) <= 1e6).all():
        raise DataError(_NOT_A_DRAWING)
    return points


def _dots(path: np.ndarray, size: int) -> np.ndarray:
    """Dots between the points, close enough to look like a line."""
    lengths = np.sqrt((np.diff(path, axis=0) ** 2).sum(axis=1))
    counts = np.ceil(_DOTS_PER_PIXEL * size * lengths).astype(int)
    parts = [
        start + (end - start) * (np.arange(count) / count)[:, None]
        for start, end, count in zip(path, path[1:], counts, strict=False)
        if count
    ]
    return np.concatenate([*parts, path[-1:]])
