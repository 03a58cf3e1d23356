"""Generated drawings of random characters, which need no downloads."""

import functools
from dataclasses import dataclass

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._image_set import Classes, ImageSet
from alfa.types import Count

# Statistics of the pixels of many characters, on the scale from 0 to 1.
MEAN, STD = (0.886,), (0.285,)
# The boundaries between training, validation, and test classes, in percent of all classes.
_BOUNDS = (0, 64, 80, 100)
_GRID = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
# The larger side of a character, as a fraction of the image's side.
CHARACTER_EXTENT = 0.56


@dataclass(frozen=True)
class DrawingStyle:
    """The variation between drawings of a character; lengths are fractions of the image's side."""

    jitter: float = 0.04  # the standard deviation of every point's position
    rotation: float = np.pi / 15  # the largest rotation in radians, in either direction
    scale: float = 0.15  # the largest relative change of width and height
    shear: float = 0.2  # the largest shear, in either direction
    shift: float = 0.09  # the largest shift in every direction
    pen: tuple[float, float] = (0.045, 0.095)  # the smallest and largest line width
    zoom: tuple[float, float] = (1.0, 1.0)  # the range of magnifications, uniform in logarithm
    roam: float = 0.0  # the weight of a random position in the image, from 0 to 1


# Sizes, line widths, and positions vary as when people draw with a mouse.
FREEHAND_STYLE = DrawingStyle(shift=0.0, pen=(0.035, 0.11), zoom=(0.65, 1.5), roam=1.0)


class Strokes:
    """Random characters of two to four strokes, drawn dark on white.

    Drawing `e` of character `c` is a pure function of (seed, c, e, size, style), independent of
    `num_classes` and `num_examples`. The first 64 % of the characters are for training, the next
    16 % for validation, and the last 20 % for test.

    Args:
        num_classes: the number of characters.
        num_examples: the number of drawings of each character.
        size: the side of a drawing in pixels.
        seed: the seed of the random characters and drawings.
        style: the variation between drawings; the characters do not depend on it.

    Examples:
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
        """Return all drawings; the first call generates them."""
        return self._images

    @functools.cached_property
    def _images(self) -> ImageSet:
        bounds = [self.num_classes * bound // 100 for bound in _BOUNDS]
        splits: dict[Split, Classes] = {
            split: Classes(
                names=tuple(f"stroke-{number:04d}" for number in range(begin, end)),
                first=np.arange(begin, end) * self.num_examples,
                count=np.full(end - begin, self.num_examples),
            )
            for split, begin, end in zip(SPLITS, bounds, bounds[1:], strict=False)
            if end > begin
        }
        pixels = np.concatenate([self._drawings(number) for number in range(self.num_classes)])
        return ImageSet("strokes", pixels[:, None], splits, MEAN, STD)

    def _drawings(self, number: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, number])
        children = rng.spawn(self.num_examples)
        strokes = _new_character(rng)
        # The largest drawing determines the number of dots.
        points, path = np.concatenate(strokes), _pen_path(strokes, self.size, self.style.zoom[1])
        return np.stack(
            [_drawing(points, path, child, self.size, self.style) for child in children]
        )


def _new_character(rng: np.random.Generator) -> list[np.ndarray]:
    """Connect near points of a jittered grid; many strokes begin at a point of an earlier one.

    Returns the points ``[point, 2]`` of each stroke, right and down from the center of the image.
    """
    strokes: list[list[int]] = []
    free = np.ones(len(_GRID), dtype=bool)
    num_strokes = rng.integers(2, 5)
    for _ in range(num_strokes):
        used = np.flatnonzero(~free)
        start = rng.choice(used if len(used) and rng.random() < 0.6 else np.flatnonzero(free))
        stroke = [start]
        free[start] = False
        # A character of two strokes needs longer ones, or it would often be a straight line.
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
    """Return the matrix ``[dot, point]`` of Catmull-Rom splines through the points of strokes."""
    from scipy.linalg import block_diag

    blocks = []
    for stroke in strokes:
        # Dense enough for a straight edge of the thinnest line.
        lengths = np.sqrt((np.diff(stroke, axis=0) ** 2).sum(axis=1)) * size * zoom
        counts = np.ceil(1.5 * lengths / np.sqrt(size / 28)).astype(int)
        times = [part + np.arange(count) / count for part, count in enumerate(counts)]
        blocks.append(_spline(np.append(np.concatenate(times), len(counts)), len(stroke)))
    path: np.ndarray = block_diag(*blocks)
    return path


def _spline(times: np.ndarray, num_points: int) -> np.ndarray:
    """Return the weights ``[time, point]`` of a curve that passes point i at time i."""
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
        # The end points replace their missing neighbors.
        weights[np.arange(len(times)), np.clip(before + offset, 0, num_points - 1)] += part
    return weights


def _drawing(
    points: np.ndarray, path: np.ndarray, rng: np.random.Generator, size: int, style: DrawingStyle
) -> np.ndarray:
    """Generate one drawing, uint8 ``[height, width]``."""
    points = points + rng.normal(0, style.jitter, points.shape)
    turn, wide, high, lean, right, down, pen = rng.uniform(-1, 1, 7)
    cos, sin = np.cos(style.rotation * turn), np.sin(style.rotation * turn)
    slant = np.array([[1 + style.scale * wide, style.shear * lean], [0, 1 + style.scale * high]])
    points = points @ (np.array([[cos, -sin], [sin, cos]]) @ slant).T
    points += style.shift * np.array([right, down])
    width = float(np.interp(pen, (-1, 1), style.pen))
    dots = path @ points
    if style.zoom != (1, 1):
        # This random number is the last one, so that the others do not depend on it.
        dots *= np.exp(rng.uniform(*np.log(style.zoom)))
    if style.roam:
        dots += style.roam * _offset_to(rng.uniform(0, 1, 2), dots, width)
    return render_strokes(dots, width=width, size=size)


def _offset_to(place: np.ndarray, dots: np.ndarray, width: float) -> np.ndarray:
    """Return the shift of dots to a place from 0, the left or upper border, to 1, the opposite."""
    low, high = dots.min(axis=0) - width / 2, dots.max(axis=0) + width / 2
    room = np.maximum(0, 1 - (high - low))
    # A drawing that is larger than the image is centered.
    start = np.where(room > 0, -0.5, -(high - low) / 2)
    moved: np.ndarray = start + place * room - low
    return moved


def render_strokes(dots: np.ndarray, *, width: float, size: int) -> np.ndarray:
    """Render a line through dots by the distance of each pixel to the nearest dot."""
    centers = (np.arange(size) + 0.5) / size - 0.5
    right, down = ((centers - dots[:, axis, None]).astype(np.float32) ** 2 for axis in (0, 1))
    distance = np.sqrt((down[:, :, None] + right[:, None, :]).min(axis=0))
    # A pixel whose center is on the edge of the line is half covered.
    ink = np.clip((width / 2 - distance) * size + 0.5, 0, 1)
    pixels: np.ndarray = np.round(255 * (1 - ink)).astype(np.uint8)
    return pixels
