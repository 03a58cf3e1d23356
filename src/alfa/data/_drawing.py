"""Drawings of a pen, rendered in the style of the generated characters."""

from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from alfa.data._strokes import CHARACTER_EXTENT, DrawingStyle, render_strokes
from alfa.errors import DataError

# Several minutes of pen movement stay below this limit.
MAX_POINTS = 5_000

# The mean line width of the generated characters.
_PEN_WIDTH = sum(DrawingStyle().pen) / 2
# Rendering stores the distances of a batch of dots to all pixels.
_DOTS_PER_PIXEL, _DOTS_PER_BATCH = 2, 256
# No screen is that large, and much larger numbers would overflow.
_Coordinate = Annotated[float, Field(ge=-1e6, le=1e6, strict=True)]
_STROKES = TypeAdapter(list[list[tuple[_Coordinate, _Coordinate]]])
_INVALID = "the drawing is invalid; clear the pad and draw it again."


def read_strokes(content: bytes) -> list[list[tuple[float, float]]]:
    """Read strokes from JSON, as `draw` takes them."""
    try:
        return _STROKES.validate_json(content)
    except ValidationError:
        raise DataError(_INVALID) from None


def draw(strokes: Any, *, size: int, dark: bool) -> np.ndarray:
    """Render strokes, uint8 ``[size, size]``, centered and as large as the training characters.

    Strokes are lists of points ``[right, down]`` on any scale. Ink is dark on white, or else light
    on black.
    """
    try:
        paths = [np.array(stroke) for stroke in _STROKES.validate_python(strokes) if stroke]
    except ValidationError:
        raise DataError(_INVALID) from None
    if not paths:
        raise DataError("the pad is empty; draw something first.")
    points = np.concatenate(paths)
    if len(points) > MAX_POINTS:
        raise DataError(
            f"the drawing has {len(points):,} points, more than the limit of {MAX_POINTS:,}; "
            "clear the pad and draw fewer lines."
        )
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max())
    # A single dot has no extent.
    scale = CHARACTER_EXTENT / extent if extent > 0 else 1.0
    center = (low + high) / 2
    dots = np.concatenate([_dots(scale * (path - center), size) for path in paths])
    # Each pixel depends on its nearest dot only, so the minimum over batches is exact.
    pixels = np.full((size, size), 255, np.uint8)
    for first in range(0, len(dots), _DOTS_PER_BATCH):
        batch = dots[first : first + _DOTS_PER_BATCH]
        np.minimum(pixels, render_strokes(batch, width=_PEN_WIDTH, size=size), out=pixels)
    return pixels if dark else 255 - pixels


def _dots(path: np.ndarray, size: int) -> np.ndarray:
    """Interpolate a path densely enough for a continuous line."""
    lengths = np.sqrt((np.diff(path, axis=0) ** 2).sum(axis=1))
    counts = np.ceil(_DOTS_PER_PIXEL * size * lengths).astype(int)
    parts = [
        start + (end - start) * (np.arange(count) / count)[:, None]
        for start, end, count in zip(path, path[1:], counts, strict=False)
    ]
    return np.concatenate([*parts, path[-1:]])
