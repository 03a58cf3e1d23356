"""Drawings of random characters, for a machine with no data at all."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._image_set import Classes, ImageSet
from alfa.types import Count

# Of the pixels, over many characters, on the scale from 0 to 1.
MEAN, STD = (0.886,), (0.285,)

# Where training, validation and test classes end, in hundredths of all classes.
_BOUNDS = (0, 64, 80, 100)

_GRID = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
# The larger side of a character, in parts of the image's side.
CHARACTER_EXTENT = 0.56


@dataclass(frozen=True)
class DrawingStyle:
    """How far drawings of a character differ; lengths are parts of the image's side.

    Attributes:
        jitter: by which every point is off, as a standard deviation.
        rotation: at most, in radians to either side.
        scale: by which width and height are changed at most, each for itself.
        shear: at most, to either side.
        shift: at most, in every direction.
        pen: the thinnest and the thickest line.
        zoom: how many times as large as usual a drawing is, at least and at most; any ratio is as
            likely.
        roam: how much of the room around it a drawing uses, from 0, its place does not depend on
            that, to 1, it lies anywhere in the image.
    """

    jitter: float = 0.04
    rotation: float = np.pi / 15
    scale: float = 0.15
    shear: float = 0.2
    shift: float = 0.09
    pen: tuple[float, float] = (0.045, 0.095)
    zoom: tuple[float, float] = (1.0, 1.0)
    roam: float = 0.0


# Small or large, thin or thick, in the middle or not, as people draw with a mouse.
FREEHAND_STYLE = DrawingStyle(shift=0.0, pen=(0.035, 0.11), zoom=(0.65, 1.5), roam=1.0)


class Strokes:
    """Random characters of two to four strokes, drawn by an unsteady style, dark on white.

    Drawing `e` of character `c` is a pure function of (seed, c, e, size, style): it is the same
    however many there are. The first 64 % of the characters are for training, the next 16 % for
    validation, the last 20 % for test.

    Args:
        num_classes: different characters.
        num_examples: drawings of each.
        size: the side of a drawing in pixels.
        seed: decides everything random.
        style: how far drawings of a character differ; the characters do not depend on it.

    Example:
        >>> from alfa.data import Strokes
        >>> images = Strokes(num_classes=100, num_examples=5).images()
        >>> images.shape, {split: len(classes) for split, classes in images.splits.items()}
        ((1, 28, 28), {'train': 64, 'val': 16, 'test': 20})
    """

    def __init__(
        self,
        *,
        num_classes: Count = 300,
        num_examples: Count = 20,
        size: Count = 28,
        seed: int = 0,
        style: DrawingStyle = DrawingStyle(),  # noqa: B008 - frozen
    ) -> None:
        self.num_classes, self.num_examples = num_classes, num_examples
        self.size, self.seed, self.style = size, seed, style

    def images(self) -> ImageSet:
        """All drawings; made at the first call, and kept in memory."""
        return self._images

    @functools.cached_property
    def _images(self) -> ImageSet:
        pixels = np.concatenate([self._drawings(number) for number in range(self.num_classes)])
        return ImageSet("strokes", pixels[:, None], self._splits(), MEAN, STD)

    def _splits(self) -> dict[Split, Classes]:
        bounds = [self.num_classes * bound // 100 for bound in _BOUNDS]
        return {
            split: Classes(
                names=tuple(f"stroke-{number:04d}" for number in range(begin, end)),
                first=np.arange(begin, end) * self.num_examples,
                count=np.full(end - begin, self.num_examples),
            )
            for split, begin, end in zip(SPLITS, bounds, bounds[1:], strict=False)
            if end > begin
        }

    def _drawings(self, number: int) -> np.ndarray:
        """All drawings of one character."""
        rng = np.random.default_rng([self.seed, number])
        sources = rng.spawn(self.num_examples)
        strokes = _new_character(rng)
        # Dots must lie as close in the largest drawing as in one of the usual size.
        points, way = np.concatenate(strokes), _pen_path(strokes, self.size, self.style.zoom[1])
        drawings = [_drawing(points, way, source, self.size, self.style) for source in sources]
        return np.stack(drawings)


def _new_character(rng: np.random.Generator) -> list[np.ndarray]:
    """Strokes from point to near point of a loose grid, many from where the pen has been.

    Returns:
        The points ``[point, 2]`` of each stroke: right and down from the middle of the image, in
        parts of its side.
    """
    strokes: list[list[int]] = []
    free = np.ones(len(_GRID), dtype=bool)
    num_strokes = rng.integers(2, 5)
    for _ in range(num_strokes):
        used = np.flatnonzero(~free)
        start = rng.choice(used if len(used) and rng.random() < 0.6 else np.flatnonzero(free))
        stroke = [start]
        free[start] = False
        # Two strokes alone would often be one straight line.
        for _ in range(rng.integers(2 if num_strokes == 2 else 1, 4)):
            near = np.abs(_GRID - _GRID[stroke[-1]]).max(axis=1) <= 2
            stroke.append(rng.choice(np.flatnonzero(free & near if (free & near).any() else free)))
            free[stroke[-1]] = False
        strokes.append(stroke)
    points = _GRID + rng.uniform(-0.3, 0.3, _GRID.shape)
    low, high = points[~free].min(axis=0), points[~free].max(axis=0)
    points = CHARACTER_EXTENT * (points - (low + high) / 2) / (high - low).max()
    return [points[stroke] for stroke in strokes]


def _pen_path(strokes: list[np.ndarray], size: int, zoom: float) -> np.ndarray:
    """``[dot, point]``; times the points of all strokes, it gives dots that are near each other.

    Every stroke is a Catmull-Rom spline through its points.
    """
    num_points = sum(len(stroke) for stroke in strokes)
    rows = []
    column = 0
    for stroke in strokes:
        # Dots so close that the edge of even the thinnest line looks straight.
        lengths = np.sqrt((np.diff(stroke, axis=0) ** 2).sum(axis=1)) * size * zoom
        counts = np.ceil(1.5 * lengths / np.sqrt(size / 28)).astype(int)
        times = [part + np.arange(count) / count for part, count in enumerate(counts)]
        weights = _spline(np.append(np.concatenate(times), len(counts)), len(stroke))
        row = np.zeros((len(weights), num_points))
        row[:, column : column + len(stroke)] = weights
        rows.append(row)
        column += len(stroke)
    return np.concatenate(rows)


def _spline(times: np.ndarray, num_points: int) -> np.ndarray:
    """``[time, point]``: the weights of a curve that is at point i at time i."""
    before = np.minimum(times.astype(int), num_points - 2)
    t = times - before
    parts = (
        (-t + 2 * t**2 - t**3) / 2,
        (2 - 5 * t**2 + 3 * t**3) / 2,
        (t + 4 * t**2 - 3 * t**3) / 2,
        (-(t**2) + t**3) / 2,
    )
    weights = np.zeros((len(times), num_points))
    for offset, part in zip((-1, 0, 1, 2), parts, strict=True):
        # The first and the last point stand for the neighbours that they lack.
        weights[np.arange(len(times)), np.clip(before + offset, 0, num_points - 1)] += part
    return weights


def _drawing(
    points: np.ndarray, way: np.ndarray, rng: np.random.Generator, size: int, style: DrawingStyle
) -> np.ndarray:
    """One drawing, uint8 ``[height, width]``."""
    points = points + rng.normal(0, style.jitter, points.shape)
    turn, wide, high, lean, right, down, pen = rng.uniform(-1, 1, 7)
    cos, sin = np.cos(style.rotation * turn), np.sin(style.rotation * turn)
    slant = np.array([[1 + style.scale * wide, style.shear * lean], [0, 1 + style.scale * high]])
    points = points @ (np.array([[cos, -sin], [sin, cos]]) @ slant).T
    points += style.shift * np.array([right, down])
    width = float(np.interp(pen, (-1, 1), style.pen))
    dots = way @ points
    if style.zoom != (1, 1):
        # Drawn after everything else, which is then the same with and without it.
        dots *= np.exp(rng.uniform(*np.log(style.zoom)))
    if style.roam:
        dots += style.roam * _offset_to(rng.uniform(0, 1, 2), dots, width)
    return render_strokes(dots, width=width, size=size)


def _offset_to(place: np.ndarray, dots: np.ndarray, width: float) -> np.ndarray:
    """How far right and down dots are moved to lie at a place within their image.

    Args:
        place: from 0, at the left or upper border, to 1, at the other.
        dots: ``[dot, 2]``, from the middle of the image.
        width: of the line around them.
    """
    low, high = dots.min(axis=0) - width / 2, dots.max(axis=0) + width / 2
    room = np.maximum(0, 1 - (high - low))
    # What is too large for the image is put into its middle.
    start = np.where(room > 0, -0.5, -(high - low) / 2)
    moved: np.ndarray = start + place * room - low
    return moved


def render_strokes(dots: np.ndarray, *, width: float, size: int) -> np.ndarray:
    """Grey values of a pen's way, from each pixel's distance to the nearest of its dots."""
    centres = (np.arange(size) + 0.5) / size - 0.5
    right, down = ((centres - dots[:, axis, None]).astype(np.float32) ** 2 for axis in (0, 1))
    distance = np.sqrt((down[:, :, None] + right[:, None, :]).min(axis=0))
    # A pixel whose middle is at the pen's edge is half covered.
    ink = np.clip((width / 2 - distance) * size + 0.5, 0, 1)
    pixels: np.ndarray = np.round(255 * (1 - ink)).astype(np.uint8)
    return pixels
