"""Images in any form, converted to the input of a model."""

from __future__ import annotations

import contextlib
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

from alfa.data import Signature, decode, decode_opened, scale_and_shift
from alfa.data.photos import read_photo
from alfa.errors import ConfigError, DataError

ValueRange = tuple[float, float]
"""The values of black and of white."""

_BYTES: ValueRange = (0.0, 255.0)
_BITS: ValueRange = (0.0, 1.0)
# Values that reach this far are on the scale of bytes, not from 0 to 1.
_MIN_BYTE_RANGE = 50.0


def check_normalized(signature: Signature, run: Any) -> None:
    """Raise unless a run can classify a user's images.

    Args:
        signature: of the run's tasks.
        run: the name of the run.

    Raises:
        ConfigError: its tasks are not classes of images, or their normalization is unknown.
    """
    if signature.loss != "cross_entropy" or len(signature.input_shape) != 3:
        raise ConfigError(
            f"{run} was not trained on images of classes; use a run that was, such as the one that "
            "`alfa train strokes-demo` makes in minutes, or FewShotRegressor for a run of "
            "regression."
        )
    num_channels = signature.input_shape[0]
    if num_channels not in (1, 3):
        raise ConfigError(
            f"{run} was trained on images of {num_channels} channels, but image files have 1 or 3; "
            "use another run."
        )
    if not len(signature.mean) == len(signature.std) == num_channels:
        raise ConfigError(
            f"{run} cannot classify other images: the signature of its tasks does not say how "
            f"images are normalized; give it `mean` and `std` of {num_channels} channel(s), and "
            "train again."
        )


def as_collection(X: Any) -> Any:  # noqa: N803 - scikit-learn's name
    """Images as an array or a sequence; iterators, such as those of `Path.glob`, become lists."""
    if isinstance(X, (str, bytes, PathLike, Image.Image)):
        raise ConfigError(
            f"X is {X!r}, but must be images, one for each label; give a list, also of a single "
            "one."
        )
    is_array = hasattr(X, "shape") or hasattr(X, "__array__")
    if isinstance(X, Iterable) and not isinstance(X, Sequence) and not is_array:
        X = list(X)  # noqa: N806
    if is_table(X) or not hasattr(X, "__array__"):
        return X
    try:
        return _as_array(X)
    except DataError as error:
        raise ConfigError(f"X {error}.") from None


def is_table(X: Any) -> bool:  # noqa: N803
    """Whether scikit-learn validates X: a table with a row for each example, or no images at all.

    Images are a list of them, or an array with a shape for each. File names, and images of
    different shapes, may be in an array of objects.
    """
    shape = getattr(X, "shape", None)
    if shape is None:
        return not isinstance(X, Sequence) or (len(X) > 0 and not _is_image(X[0]))
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    return len(shape) <= 2 and not (len(shape) == 1 and kind in ("O", "U", "T"))


def check_is_batch(X: Any, num_axes: int | None) -> None:  # noqa: N803
    """Raise if there are no images, or if X is a single image and not a batch.

    Args:
        X: the images.
        num_axes: the number of axes of an image of the support set, if all have the same.
    """
    if not len(X):
        raise ConfigError("there are no images; at least one is needed.")
    shape: list[int] = []
    # Nested lists may have different lengths.
    with contextlib.suppress(ValueError):
        if isinstance(X, np.ndarray) or isinstance(X[0], (list, tuple)):
            shape = list(np.shape(X))
    # If the support set has channels, three gray images are one image with channels first.
    if len(shape) == 3 and (shape[2] in (1, 3, 4) or (num_axes == 3 and shape[0] == 3)):
        raise ConfigError(
            f"X has the shape {shape}, which is that of one image, not of {shape[0]}; give a list "
            "of images, also of a single one."
        )


def _is_image(first: Any) -> bool:
    """Whether the first element of a list is an image, and not the row of a table."""
    if first is None or isinstance(first, (str, bytes, PathLike, Image.Image)):
        return True
    try:
        return np.ndim(first) >= 2
    except ValueError:
        # Rows of different lengths.
        return True


@dataclass(frozen=True)
class ImageReader:
    """Converts images to the input of a model.

    Attributes:
        signature: of the tasks that the model was trained on.
        values: of black and white in arrays that are not bytes; None if unknown.
        is_guessed: the values were derived from a support set, not given by the user.
        num_axes: the number of axes of an image of the support set, if all have the same.
    """

    signature: Signature
    values: ValueRange | None = None
    is_guessed: bool = False
    num_axes: int | None = None

    def read(self, X: Any) -> Tensor:  # noqa: N803
        """Normalized images, ``[example, channel, height, width]``.

        Raises:
            ConfigError: names an image that cannot be used.
        """
        num_channels, height, width = self.signature.input_shape
        self._check_scale(X)
        levels = np.empty((len(X), num_channels, height, width), np.float32)
        for number, image in enumerate(_each_image(X)):
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
            content: bytes | np.ndarray = read_photo(Path(image))
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

    def _check_scale(self, X: Any) -> None:  # noqa: N803
        """Raise if all images are from 0 to 1, but the support set was, say, from 0 to 255."""
        if not self.is_guessed or self.values is None:
            return
        low, high = self.values
        if low < 0 or high - low < _MIN_BYTE_RANGE:
            return
        ends = _extremes(values for values in _arrays_of_unknown_scale(X) if values.dtype != bool)
        if ends is not None and ends[0] >= 0 and 0 < ends[1] <= 1:
            raise ConfigError(f"X {_other_scale(*ends, self.values)}.")


def num_axes(X: Any) -> int | None:  # noqa: N803
    """The number of axes of an image, if all are arrays with the same number; None for a table."""
    if getattr(X, "ndim", None) == 2:
        return None
    found = {getattr(image, "ndim", None) for image in _each_image(X)}
    return found.pop() if len(found) == 1 else None


def _resized(plane: np.ndarray, width: int, height: int) -> np.ndarray:
    """One channel in another size, clipped as Pillow clips bytes.

    The filter overshoots at edges. Values that were beyond black or white before stay.
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
    """The values of black and white in arrays, derived from the values that occur.

    (0, 1) if all lie there; (0, 255) if they lie there and reach beyond 50; otherwise the least
    and the greatest. None if all images are files or bytes, whose scale is known.
    """
    ends = _extremes(_arrays_of_unknown_scale(X))
    if ends is None:
        return None
    low, high = ends
    if low >= 0 and high <= 1:
        return _BITS
    if low >= 0 and _MIN_BYTE_RANGE <= high <= 255:
        return _BYTES
    return (low, high) if low < high else (low, low + 1)


def _extremes(arrays: Iterable[np.ndarray]) -> ValueRange | None:
    ends = [(float(values.min()), float(values.max())) for values in arrays]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def _arrays_of_unknown_scale(X: Any) -> Iterator[np.ndarray]:  # noqa: N803
    """Arrays that are not bytes; invalid images are skipped here, and `ImageReader` raises."""
    for image in _each_image(X):
        if isinstance(image, (str, PathLike, Image.Image)):
            continue
        with contextlib.suppress(DataError):
            values = _numbers(image)
            if values.dtype != np.uint8 and values.size and np.isfinite(values).all():
                yield values


def _as_array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    # Ragged rows, and tensors on another device, with a gradient, or of an unknown type.
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"cannot be converted to a NumPy array ({error})") from None


def _numbers(image: Any) -> np.ndarray:
    """An image as an array of numbers, channels last."""
    values = _as_array(image)
    if values.dtype.kind not in "biuf":
        what = type(image).__name__
        what += f" of {image.dtype}" if isinstance(image, np.ndarray) else ""
        raise DataError(
            f"is of the type {what}, but must be a file name, a PIL image or an array of numbers"
        )
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3, 4):
        return values.transpose(1, 2, 0)
    return values


def _each_image(X: Any) -> Iterator[Any]:  # noqa: N803
    is_table = isinstance(X, np.ndarray) and X.ndim == 2
    return map(_from_row, X) if is_table else iter(X)


def _from_row(row: np.ndarray) -> np.ndarray:
    """A row of a table as an image: a square one, gray or in color, or else a single line.

    The channels of a pixel are adjacent, as in a flattened ``[height, width, channel]``.
    """
    for num_channels in (1, 3):
        side = isqrt(len(row) // num_channels)
        if side > 1 and side * side * num_channels == len(row):
            return row.reshape(side, side, num_channels)
    return row.reshape(1, -1, 1)
