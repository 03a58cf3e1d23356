"""Conversion of images in any form to the input of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isqrt
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from alfa.backbones import EmbeddingCache, open_backbone
from alfa.data import Crop, ImageFormat, Signature, photo_grid
from alfa.data.photos import read_photo
from alfa.errors import ConfigError, DataError

ValueRange = tuple[float, float]
"""The values of black and white."""

_BYTES: ValueRange = (0.0, 255.0)
_BITS: ValueRange = (0.0, 1.0)
# A range of at least this size indicates the scale of bytes, not 0 to 1.
_MIN_BYTE_RANGE = 50.0


def check_images(signature: Signature, run: Any) -> ImageFormat:
    """Return the format of a run's images; raise unless it classifies images."""
    if signature.backbone:
        # If its weights are not installed, the error says how to install them.
        open_backbone(signature.backbone)
    try:
        return ImageFormat.of(signature)
    except ConfigError as error:
        raise ConfigError(
            f"{run} cannot classify image files: {str(error).rstrip('.')}; use another run, such "
            "as the one from `alfa train strokes-demo`, or FewShotRegressor for a regression run."
        ) from None


def as_collection(X: Any) -> Any:  # noqa: N803 - scikit-learn's name
    """Return images as an array or a sequence; convert iterators such as `Path.glob` to lists."""
    if isinstance(X, (str, bytes, PathLike, Image.Image)):
        raise ConfigError(f"X must be a list of images, got {X!r}; put a single image in a list.")
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
    """Whether X is a table of pixels or invalid, so that scikit-learn validates it.

    Otherwise X is a list or an array of images; an array of objects may contain file names.
    """
    shape = getattr(X, "shape", None)
    if shape is None:
        return not isinstance(X, Sequence) or (len(X) > 0 and not _is_image(X[0]))
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    return len(shape) <= 2 and not (len(shape) == 1 and kind in ("O", "U", "T"))


def _is_image(first: Any) -> bool:
    """Whether the first element of a list is an image rather than the row of a table."""
    if first is None or isinstance(first, (str, bytes, PathLike, Image.Image)):
        return True
    try:
        return np.ndim(first) >= 2
    except ValueError:
        # Rows of different lengths.
        return True


def check_is_batch(X: Any, num_axes: int | None) -> None:  # noqa: N803
    """Raise if X is empty or a single image; `num_axes` is the number of axes of support images."""
    if not len(X):
        raise ConfigError("X contains no images; at least one is required.")
    shape: list[int] = []
    # Nested lists may have different lengths.
    with contextlib.suppress(ValueError):
        if isinstance(X, np.ndarray) or isinstance(X[0], (list, tuple)):
            shape = list(np.shape(X))
    # If support images have channels, three gray images are one image with channels first.
    if len(shape) == 3 and (shape[2] in (1, 3, 4) or (num_axes == 3 and shape[0] == 3)):
        raise ConfigError(
            f"X has the shape {shape} of a single image, not of {shape[0]} images; put a single "
            "image in a list."
        )


@dataclass(frozen=True, eq=False)
class PreparedImages:
    """Images as inputs of a model: decoded, resized, and mapped to features by a backbone, if any.

    `FewShotClassifier` accepts them in place of images, so several calls of `fit`, `partial_fit`,
    and the predictions prepare each image only once.

    Attributes:
        format: the images that the model takes.
        x: the inputs of the model, ``[image, ...]``.
        grids: the results of `alfa.data.photo_grid`, by which copies are found.

    Examples:
        >>> import tempfile
        >>> from alfa import FewShotClassifier, Run
        >>> from alfa.data import ImageFormat, Strokes
        >>> from alfa.estimator import PreparedImages
        >>> from alfa.testing import small_run
        >>> run = Run.open(small_run(tempfile.mkdtemp()))
        >>> images = Strokes(num_classes=2, num_examples=5, size=16).images().images
        >>> prepared = PreparedImages.of(ImageFormat.of(run.signature), images)
        >>> clf = FewShotClassifier(run).fit(prepared, ["alef"] * 5 + ["bet"] * 5)
        >>> len(prepared), clf.predict_proba(prepared).shape
        (10, (10, 2))
    """

    format: ImageFormat
    x: Tensor
    grids: np.ndarray

    @classmethod
    def of(
        cls, image_format: ImageFormat, levels: np.ndarray, *, cache: EmbeddingCache | None = None
    ) -> Self:
        """Prepare levels from 0 to 255, ``[image, channel, height, width]``.

        Args:
            image_format: the format of the model, whose `decode` returns such levels.
            levels: the images.
            cache: the features of earlier images, if the model has a backbone.
        """
        grids = np.stack([photo_grid(image) for image in levels])
        return cls(image_format, image_format.inputs(levels, cache), grids)

    @classmethod
    def concatenate(cls, parts: Sequence[PreparedImages]) -> Self:
        """Return the images of several parts for the same model."""
        if not parts or any(part.format != parts[0].format for part in parts):
            raise ConfigError(
                "`parts` must be one or more images that were prepared for one model."
            )
        first = parts[0].format
        x, grids = [part.x for part in parts], [part.grids for part in parts]
        return cls(first, torch.cat(x), np.concatenate(grids))

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class ImageReader:
    """Converts images to the input of a model."""

    format: ImageFormat  # of the model's images
    values: ValueRange | None  # black and white in arrays other than uint8; None if unknown
    is_guessed: bool  # `values` were derived from the support set
    num_axes: int | None  # of each support image; None if it differs or X is a table
    cache: EmbeddingCache = field(default_factory=EmbeddingCache)  # of features

    @classmethod
    def fit(cls, format: ImageFormat, X: Any, values: Any) -> ImageReader:  # noqa: N803
        """Validate the values of black and white, or derive them from a support set."""
        if isinstance(X, PreparedImages):
            X = ()  # noqa: N806
        axes = {getattr(image, "ndim", None) for image in _each_image(X)}
        num_axes = axes.pop() if len(axes) == 1 and getattr(X, "ndim", None) != 2 else None
        if values is None:
            return cls(format, value_range(X), True, num_axes)
        try:
            low, high = (float(value) for value in values)
            is_valid = np.isfinite([low, high]).all() and low != high
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ConfigError(
                "`value_range` must be the two different values of black and white, such as (0, "
                f"1), got {values!r}."
            )
        return cls(format, (low, high), False, num_axes)

    def read(self, X: Any) -> Tensor:  # noqa: N803
        """Return the inputs of the model, ``[example, ...]``."""
        if isinstance(X, PreparedImages):
            return X.x
        return torch.cat([self._inputs(levels) for levels in self._each_levels(X)])

    def read_support(self, X: Any) -> tuple[Tensor, np.ndarray]:  # noqa: N803
        """Return the inputs of the model, and the results of `photo_grid` to find copies."""
        if isinstance(X, PreparedImages):
            return X.x, X.grids
        # One at a time, because photos need more memory than their features.
        found = [(self._inputs(levels), photo_grid(levels)) for levels in self._each_levels(X)]
        inputs, each = zip(*found, strict=True)
        grids = np.stack(each)
        # The rows of a table may have few values, which agree by chance.
        return torch.cat(inputs), np.zeros_like(grids) if getattr(X, "ndim", 0) == 2 else grids

    def _inputs(self, levels: np.ndarray) -> Tensor:
        return self.format.inputs(levels[None], self.cache)

    def _each_levels(self, X: Any) -> Iterator[np.ndarray]:  # noqa: N803
        """Yield the levels of each image, ``[channel, height, width]``."""
        self._check_scale(X)
        for number, image in enumerate(_each_image(X)):
            try:
                yield self._levels(image)
            except DataError as error:
                name = image if isinstance(image, (str, PathLike)) else f"image {number}"
                raise ConfigError(f"{name} {error}.") from None

    def _levels(self, image: Any) -> np.ndarray:
        """Return gray or color levels from 0 to 255, ``[channel, height, width]``."""
        if isinstance(image, Image.Image):
            return self.format.decode_opened(image)[0]
        if isinstance(image, (str, PathLike)):
            content: bytes | np.ndarray = read_photo(Path(image))
        else:
            content = _numbers(image)
            if content.dtype != np.uint8:
                return self._rescaled(content)
        return self.format.decode(content)[0]

    def _rescaled(self, values: np.ndarray) -> np.ndarray:
        """Convert an array other than uint8 to the levels and size of the model."""
        num_channels, height, width = self.format.shape
        if values.ndim == 2:
            values = values[:, :, None]
        if values.ndim != 3 or values.shape[2] not in (1, 3, 4) or 0 in values.shape:
            raise DataError(
                f"has the shape {list(values.shape)}, but must be [height, width] or [height, "
                "width, channel] with 1, 3, or 4 channels"
            )
        if not np.isfinite(values).all():
            raise DataError("contains NaN or infinity")
        low, high = self._range(values)
        levels = 255 * (values.astype(np.float64) - low) / (high - low)
        levels = levels.astype(np.float32)
        if levels.shape[2] == 4:
            # A white background, as for transparent files and bytes.
            opacity = levels[:, :, 3:].clip(0, 255) / 255
            levels = opacity * levels[:, :, :3] + (1 - opacity) * 255
        if levels.shape[2] == 3 and num_channels == 1:
            # Luma as in Pillow (ITU-R 601).
            levels = levels @ np.array([[0.299], [0.587], [0.114]], np.float32)
        planes = [
            _resized(plane, width, height, self.format.crop) for plane in levels.transpose(2, 0, 1)
        ]
        return np.broadcast_to(np.stack(planes), self.format.shape)

    def _range(self, values: np.ndarray) -> ValueRange:
        """Return the values of black and white in an array; raise if its scale is unknown."""
        if values.dtype.kind == "b":
            return _BITS
        low, high = values.min(), values.max()
        if self.values is not None:
            # Sharpening or rotation may slightly exceed black and white.
            if self.is_guessed and self.values == _BITS and not (low >= -0.5 and high <= 1.5):
                raise DataError(_other_scale(low, high, _BITS))
            return self.values
        if values.dtype.kind == "f" or low < 0 or high > 255:
            raise DataError(
                f"is an array of {values.dtype} with values from {low:g} to {high:g}, but the "
                "support set has only bytes or files, so the values of black and white are "
                "unknown; use uint8, or set `value_range` and fit again"
            )
        return _BYTES

    def _check_scale(self, X: Any) -> None:  # noqa: N803
        """Raise if all images are in 0 to 1, but the support set was, for example, in 0 to 255."""
        if not self.is_guessed or self.values is None:
            return
        low, high = self.values
        if low < 0 or high - low < _MIN_BYTE_RANGE:
            return
        ends = _extremes(X, skip_bool=True)
        if ends is not None and ends[0] >= 0 and 0 < ends[1] <= 1:
            raise ConfigError(f"X {_other_scale(*ends, self.values)}.")


def value_range(X: Any) -> ValueRange | None:  # noqa: N803
    """Derive the values of black and white in arrays from their extremes.

    None if all images are files or bytes, which have a known scale.
    """
    ends = _extremes(X)
    if ends is None:
        return None
    low, high = ends
    if low >= 0 and high <= 1:
        return _BITS
    if low >= 0 and _MIN_BYTE_RANGE <= high <= 255:
        return _BYTES
    return (low, high) if low < high else (low, low + 1)


def _extremes(X: Any, *, skip_bool: bool = False) -> ValueRange | None:  # noqa: N803
    """Return the extreme values of all arrays other than uint8; None if there are none.

    Invalid images are skipped here; `ImageReader` raises.
    """
    ends: list[float] = []
    for image in _each_image(X):
        if isinstance(image, (str, PathLike, Image.Image)):
            continue
        with contextlib.suppress(DataError):
            values = _numbers(image)
            is_skipped = values.dtype == np.uint8 or (skip_bool and values.dtype == bool)
            if not is_skipped and values.size and np.isfinite(values).all():
                ends += [float(values.min()), float(values.max())]
    return (min(ends), max(ends)) if ends else None


def _other_scale(low: float, high: float, support: ValueRange) -> str:
    return (
        f"has values from {low:g} to {high:g}, but the support set had values from {support[0]:g} "
        f"to {support[1]:g}; use the same scale, or set `value_range` and fit again"
    )


def _resized(plane: np.ndarray, width: int, height: int, crop: Crop | None) -> np.ndarray:
    """Resize one channel, and clip the overshoot of the filter as Pillow does for bytes.

    Values that exceeded black or white before are preserved.
    """
    low, high = min(0, plane.min()), max(255, plane.max())
    if plane.shape == (height, width):
        return plane
    left, top, right, bottom = 0.0, 0.0, plane.shape[1], plane.shape[0]
    resample = Image.Resampling.LANCZOS
    if crop is not None:
        left, top, right, bottom = crop.box(plane.shape[1], plane.shape[0], height)
        resample = crop.filter
    rows = (0, top, width, bottom)
    for size, box in (((width, len(plane)), (left, 0, right, len(plane))), ((width, height), rows)):
        image = Image.fromarray(np.ascontiguousarray(plane))
        plane = np.clip(np.asarray(image.resize(size, resample, box)), low, high)
    return plane


def _as_array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    # Ragged rows, and tensors on another device, with a gradient, or with an unsupported dtype.
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"cannot be converted to a NumPy array ({error})") from None


def _numbers(image: Any) -> np.ndarray:
    """Return an image as an array of numbers with channels last."""
    values = _as_array(image)
    if values.dtype.kind not in "biuf":
        kind = type(image).__name__
        kind += f" of {image.dtype}" if isinstance(image, np.ndarray) else ""
        raise DataError(f"must be a file name, a PIL image, or an array of numbers, got {kind}")
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3, 4):
        return values.transpose(1, 2, 0)
    return values


def _each_image(X: Any) -> Iterator[Any]:  # noqa: N803
    return map(_from_row, X) if isinstance(X, np.ndarray) and X.ndim == 2 else iter(X)


def _from_row(row: np.ndarray) -> np.ndarray:
    """Reshape the row of a table to a square gray or color image, or else to a single line.

    The channels of a pixel are adjacent, as in a flattened ``[height, width, channel]``.
    """
    for num_channels in (1, 3):
        side = isqrt(len(row) // num_channels)
        if side > 1 and side * side * num_channels == len(row):
            return row.reshape(side, side, num_channels)
    return row.reshape(1, -1, 1)
