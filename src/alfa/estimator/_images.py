"""From images in any form to what a model is given."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from alfa.data import Signature, decode, scale_and_shift
from alfa.errors import ConfigError, DataError

ValueRange = tuple[float, float]
"""The values of black and of white."""

_BYTES: ValueRange = (0.0, 255.0)


def is_rows(X: Any) -> bool:  # noqa: N803 - scikit-learn's name
    """Whether this is a table, a row for each example, and no images with a shape."""
    if isinstance(X, Sequence):
        if not len(X) or isinstance(X[0], (str, bytes, PathLike, Image.Image)):
            return False
        return np.ndim(X[0]) < 2
    return len(getattr(X, "shape", ())) <= 2


@dataclass(frozen=True)
class Reader:
    """Reads images as a model is to see them.

    Attributes:
        signature: of the tasks that the model was trained on.
        values: of black and white in arrays that are not bytes.
    """

    signature: Signature
    values: ValueRange = (0.0, 1.0)

    def read(self, X: Any) -> Tensor:  # noqa: N803
        """Normalised images, ``[example, channel, height, width]``.

        Args:
            X: images: files, PIL images, arrays ``[height, width]`` or ``[height, width,
                channel]``; an array of all of them; or a table of pixels.

        Raises:
            ConfigError: one of them is no image; says which.
        """
        num_channels, height, width = self.signature.input_shape
        levels = np.empty((len(X), num_channels, height, width), np.float32)
        for number, image in enumerate(_single(X)):
            try:
                levels[number] = self._levels(image)
            except DataError as error:
                name = image if isinstance(image, (str, PathLike)) else f"image {number}"
                raise ConfigError(f"{name} {error}.") from None
        scale, shift = scale_and_shift(self.signature.mean, self.signature.std)
        return torch.from_numpy(levels).mul_(scale).add_(shift)

    def _levels(self, image: Any) -> np.ndarray:
        """From 0 for black to 255 for white, ``[channel, height, width]``."""
        num_channels, height, width = self.signature.input_shape
        if isinstance(image, (str, PathLike)):
            image = _content(Path(image))
        elif isinstance(image, Image.Image):
            image = _pixels(image)
        else:
            image = np.asarray(image)
            if image.dtype != np.uint8:
                return self._stretched(image)
        pixels, _ = decode(image, size=(height, width), num_channels=num_channels)
        return pixels

    def _stretched(self, values: np.ndarray) -> np.ndarray:
        """Any numbers, brought to the model's size and channels."""
        num_channels, height, width = self.signature.input_shape
        if values.ndim == 2:
            values = values[:, :, None]
        if values.ndim != 3 or values.shape[2] not in (1, 3) or 0 in values.shape:
            raise DataError(
                f"is an array of shape {list(values.shape)}, but must be [height, width] or "
                "[height, width, channel] with 1 or 3 channels"
            )
        if not np.isfinite(values).all():
            raise DataError("has a value that is NaN or infinity")
        low, high = self.values
        levels = (255 * (values.astype(np.float64) - low) / (high - low)).astype(np.float32)
        if levels.shape[2] == 3 and num_channels == 1:
            # The luma of ITU-R 601, as Pillow has it.
            levels = levels @ np.array([[0.299], [0.587], [0.114]], np.float32)
        planes = [
            np.asarray(
                Image.fromarray(np.ascontiguousarray(levels[:, :, channel])).resize(
                    (width, height), Image.Resampling.LANCZOS
                )
            )
            for channel in range(levels.shape[2])
        ]
        stack = np.stack(planes)
        return np.repeat(stack, num_channels, axis=0) if len(stack) < num_channels else stack


def value_range(X: Any) -> ValueRange:  # noqa: N803
    """Black and white of numbers whose scale nobody says.

    From 0 to 1 where all lie there, and from the least to the greatest otherwise; images that are
    bytes have a scale of their own.
    """
    arrays = [
        values
        for values in _single(X)
        if not isinstance(values, (str, PathLike, Image.Image))
        and np.asarray(values).dtype != np.uint8
    ]
    if not arrays:
        return _BYTES
    low = min(float(np.min(values)) for values in arrays)
    high = max(float(np.max(values)) for values in arrays)
    if low >= 0 and high <= 1:
        return (0.0, 1.0)
    if not (np.isfinite(low) and np.isfinite(high)) or high == low:
        return (low, low + 1)
    return (low, high)


def _single(X: Any) -> Iterator[Any]:  # noqa: N803
    """Every image by itself."""
    if not isinstance(X, np.ndarray):
        yield from X
    elif X.ndim == 2:
        yield from (_from_row(row) for row in X)
    elif X.ndim == 4 and X.shape[1] in (1, 3) and X.shape[3] not in (1, 3, 4):
        # Channels first, as torch has them.
        yield from X.transpose(0, 2, 3, 1)
    else:
        yield from X


def _from_row(row: np.ndarray) -> np.ndarray:
    """A row of a table as an image: a square one, grey or coloured, or else a single line."""
    for num_channels in (1, 3):
        side = isqrt(len(row) // num_channels)
        if side > 1 and side * side * num_channels == len(row):
            return row.reshape(side, side, num_channels)
    return row.reshape(1, -1, 1)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})") from None


def _pixels(image: Image.Image) -> bytes | np.ndarray:
    """What `decode` takes, of an image that was opened already."""
    if image.mode in ("L", "RGB") and not image.getexif():
        return np.asarray(image)
    # By way of a file, so that transparency, orientation and depth are treated as in one.
    buffer = io.BytesIO()
    copy = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else None
    (copy or image.convert("RGB")).save(buffer, "PNG", exif=image.getexif())
    return buffer.getvalue()
