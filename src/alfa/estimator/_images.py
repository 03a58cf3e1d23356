"""From images in any form to what a model is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from alfa.data._decode import decode_opened
from alfa.data._pictures import contents
from alfa.errors import ConfigError, DataError

ValueRange = tuple[float, float]
"""The values of black and of white."""

_BYTES: ValueRange = (0.0, 255.0)
_BITS: ValueRange = (0.0, 1.0)
# From here on, a range is that of bytes, and none that pictures from 0 to 1 could belong to.
_WIDE = 50.0


def check_normalised(signature: Signature, run: Any) -> None:
    """Make sure that images of a user's can be brought to what a run was trained on.

    Args:
        signature: of its tasks, on images.
        run: what it is called.

    Raises:
        ConfigError: they cannot.
    """
    num_channels = signature.input_shape[0]
    if num_channels not in (1, 3):
        raise ConfigError(
            f"{run} was trained on images of {num_channels} channels, but files have 1 or 3, grey "
            "or coloured; use another run."
        )
    if not len(signature.mean) == len(signature.std) == num_channels:
        raise ConfigError(
            f"{run} cannot be given other images: its tasks do not say how images are normalised; "
            f"give `mean` and `std` of {num_channels} channel(s) in their `signature`, and remove "
            "signature.json from the run."
        )


def is_rows(X: Any) -> bool:  # noqa: N803 - scikit-learn's name
    """Whether this is for scikit-learn: a table, a row for each example, or what is neither.

    Images are a list of them, or an array with a shape for each; names of files, and images of
    different shapes, may be in an array of objects.
    """
    shape = getattr(X, "shape", None)
    if shape is None:
        return not isinstance(X, Sequence) or (len(X) > 0 and not _is_image(X[0]))
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    return len(shape) <= 2 and not (len(shape) == 1 and kind in ("O", "U", "T"))


def _is_image(first: Any) -> bool:
    """Whether what a list begins with is an image, or at least no row of a table."""
    if first is None or isinstance(first, (str, bytes, PathLike, Image.Image)):
        return True
    try:
        return np.ndim(first) >= 2
    except ValueError:
        # Rows of different lengths.
        return True


@dataclass(frozen=True)
class Reader:
    """Reads images as a model is to see them.

    Attributes:
        signature: of the tasks that the model was trained on.
        values: of black and white in arrays that are not bytes; None where nobody knows.
        is_guessed: the values are those of a support set, and nobody has said so.
        num_axes: of an image of the support set, where all are arrays of as many; else None.
    """

    signature: Signature
    values: ValueRange | None = None
    is_guessed: bool = False
    num_axes: int | None = None

    def read(self, X: Any) -> Tensor:  # noqa: N803
        """Normalised images, ``[example, channel, height, width]``.

        Args:
            X: images: files, PIL images, arrays ``[height, width]`` or ``[height, width,
                channel]``; an array of all of them; or a table of pixels.

        Raises:
            ConfigError: one of them is no image; says which.
        """
        num_channels, height, width = self.signature.input_shape
        self._check_narrow(X)
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
        if isinstance(image, Image.Image):
            return decode_opened(image, size=(height, width), num_channels=num_channels)[0]
        if isinstance(image, (str, PathLike)):
            content: bytes | np.ndarray = contents(Path(image))
        else:
            content = _numbers(image)
            if content.dtype != np.uint8:
                return self._stretched(content)
        return decode(content, size=(height, width), num_channels=num_channels)[0]

    def _stretched(self, values: np.ndarray) -> np.ndarray:
        """Any numbers, brought to the model's size and channels."""
        num_channels, height, width = self.signature.input_shape
        if values.ndim == 2:
            values = values[:, :, None]
        if values.ndim != 3 or values.shape[2] not in (1, 3, 4) or 0 in values.shape:
            raise DataError(
                f"is an array of shape {list(values.shape)}, but must be [height, width] or "
                "[height, width, channel] with 1, 3 or 4 channels"
            )
        if not np.isfinite(values).all():
            raise DataError("has a value that is NaN or infinity")
        low, high = self._range(values)
        levels: np.ndarray = (255 * (values.astype(np.float64) - low) / (high - low)).astype(
            np.float32
        )
        if levels.shape[2] == 4:
            # On white, as files and bytes are put that can be seen through.
            opacity = levels[:, :, 3:].clip(0, 255) / 255
            levels = opacity * levels[:, :, :3] + (1 - opacity) * 255
        if levels.shape[2] == 3 and num_channels == 1:
            # The luma of ITU-R 601, as Pillow has it.
            levels = levels @ np.array([[0.299], [0.587], [0.114]], np.float32)
        stack = np.stack([_resized(plane, width, height) for plane in levels.transpose(2, 0, 1)])
        return np.repeat(stack, num_channels, axis=0) if len(stack) < num_channels else stack

    def _range(self, values: np.ndarray) -> ValueRange:
        if values.dtype.kind == "b":
            return _BITS
        low, high = values.min(), values.max()
        if self.values is not None:
            # Where an image was sharpened or turned, its values may go a little beyond.
            if self.is_guessed and self.values == _BITS and not (low >= -0.5 and high <= 1.5):
                raise DataError(_other_scale(low, high, _BITS))
            return self.values
        if values.dtype.kind == "f":
            raise DataError(
                f"is an array of {values.dtype}, but the support set had bytes or files only, so "
                "nobody knows its black and white; give uint8, or set `value_range` and fit again"
            )
        if low < 0 or high > 255:
            raise DataError(
                f"has values from {low} to {high}, but the support set had bytes or files only, "
                "and bytes are from 0 to 255; give uint8, or set `value_range` and fit again"
            )
        return _BYTES

    def _check_narrow(self, X: Any) -> None:  # noqa: N803
        """Refuse pictures from 0 to 1 after a support set of, say, 0 to 255.

        One picture may be nearly black; all of them are hardly.
        """
        if not self.is_guessed or self.values is None:
            return
        low, high = self.values
        if low < 0 or high - low < _WIDE:
            return
        # Truth values have a scale of their own.
        ends = _ends(values for values in _unscaled(X) if values.dtype.kind != "b")
        if ends is not None and ends[0] >= 0 and 0 < ends[1] <= 1:
            raise ConfigError(f"X {_other_scale(*ends, self.values)}.")


def num_axes(X: Any) -> int | None:  # noqa: N803
    """Of every image, where all are arrays of as many; rows of a table are not."""
    if getattr(X, "ndim", None) == 2:
        return None
    found = {getattr(image, "ndim", None) for image in _single(X)}
    return found.pop() if len(found) == 1 else None


def _resized(plane: np.ndarray, width: int, height: int) -> np.ndarray:
    """One channel in another size, as Pillow has it of bytes.

    Its filter goes beyond black and white at edges, where bytes end, across and then down; values
    that were beyond before stay.
    """
    low, high = min(0, plane.min()), max(255, plane.max())
    for size in ((width, len(plane)), (width, height)):
        image = Image.fromarray(np.ascontiguousarray(plane))
        plane = np.clip(np.asarray(image.resize(size, Image.Resampling.LANCZOS)), low, high)
    return plane


def _other_scale(low: float, high: float, support: ValueRange) -> str:
    return (
        f"has values from {low:g} to {high:g}, but those of the support set were from "
        f"{support[0]:g} to {support[1]:g}; give both on one scale, or set `value_range` and fit "
        "again"
    )


def value_range(X: Any) -> ValueRange | None:  # noqa: N803
    """Black and white of numbers whose scale nobody says.

    From 0 to 1 where all lie there; from 0 to 255 where they lie there and go so far that they were
    bytes; from the least to the greatest otherwise. None where there are none, as images that are
    files or bytes have a scale of their own.
    """
    ends = _ends(_unscaled(X))
    if ends is None:
        return None
    low, high = ends
    if low >= 0 and high <= 1:
        return _BITS
    if low >= 0 and _WIDE <= high <= 255:
        return _BYTES
    return (low, high) if low < high else (low, low + 1)


def _ends(arrays: Iterable[np.ndarray]) -> ValueRange | None:
    """The least and the greatest of all numbers; None where there are none."""
    ends = [(float(values.min()), float(values.max())) for values in arrays]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def _unscaled(X: Any) -> Iterator[np.ndarray]:  # noqa: N803
    """Arrays of numbers that are not bytes; what is wrong with an image is told when it is read."""
    for image in _single(X):
        if isinstance(image, (str, PathLike, Image.Image)):
            continue
        try:
            values = _numbers(image)
        except DataError:
            continue
        if values.dtype != np.uint8 and values.size and np.isfinite(values).all():
            yield values


def _numbers(image: Any) -> np.ndarray:
    try:
        values = np.asarray(image)
    # Rows of different lengths, and tensors that are elsewhere or are being differentiated.
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"cannot be made an array ({error})") from None
    if values.dtype.kind not in "biuf":
        what = type(image).__name__
        what += f" of {image.dtype}" if isinstance(image, np.ndarray) else ""
        raise DataError(
            f"is of the type {what}, but must be a file name, a PIL image or an array of numbers"
        )
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3, 4):
        # Channels first, as torch has them.
        return values.transpose(1, 2, 0)
    return values


def _single(X: Any) -> Iterator[Any]:  # noqa: N803
    """Every image by itself."""
    if not isinstance(X, np.ndarray):
        yield from X
    elif X.ndim == 2:
        yield from (_from_row(row) for row in X)
    else:
        yield from X


def _from_row(row: np.ndarray) -> np.ndarray:
    """A row of a table as an image: a square one, grey or coloured, or else a single line.

    Colours are pixel by pixel, as when an image ``[height, width, channel]`` is flattened.
    """
    for num_channels in (1, 3):
        side = isqrt(len(row) // num_channels)
        if side > 1 and side * side * num_channels == len(row):
            return row.reshape(side, side, num_channels)
    return row.reshape(1, -1, 1)
