"""Images by split and class, in memory or mapped from disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from alfa.data._base import SPLITS, Split
from alfa.data._decode import decode
from alfa.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from alfa.data._store import Store

Shape = tuple[int, int, int]
"""Channels, height, and width of an image."""


def scale_and_shift(mean: Sequence[float], std: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return the factor and the offset ``[channel, 1, 1]`` that normalize pixels from 0 to 255."""
    mean_, std_ = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (mean, std))
    return (1 / (255 * std_)).float(), (-mean_ / std_).float()


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of a split: names, and first index and number of the images ``[class]``."""

    names: Sequence[str]
    first: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A dataset of images of one size.

    Attributes:
        name: the name of the dataset.
        images: uint8 ``[image, channel, height, width]``, class by class; `take` converts them to
            the input of a model.
        splits: the classes of each existing split.
        mean: channel means on the scale from 0 to 1, which normalize a model's inputs.
        std: channel standard deviations, likewise.
        seen_as: channels, height, and width of the converted images; None for no conversion.
        digest: identifies prepared images; empty for images in memory.
        store: the store that the images are mapped from; None for images in memory.
        source: the dataset that the images were prepared from, if that has another name.

    Examples:
        >>> import numpy as np
        >>> from alfa.data import ImageSet
        >>> images = np.zeros((10, 1, 28, 28), np.uint8)
        >>> pets = ImageSet.of_arrays("pets", {"train": {"cat": images, "dog": images}})
        >>> pets.shape, pets.splits["train"].count.tolist()
        ((1, 28, 28), [10, 10])
    """

    name: str
    images: np.ndarray
    splits: Mapping[Split, Classes]
    mean: Sequence[float]
    std: Sequence[float]
    seen_as: Shape | None = None
    digest: str = ""
    store: Store | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(
                f"the images of {self.name!r} must be a uint8 array [image, channel, height, "
                f"width], got {self.images.dtype} {list(self.images.shape)}."
            )
        unknown = [split for split in self.splits if split not in SPLITS]
        if unknown:
            raise DataError(
                f"the splits of {self.name!r} must be {', '.join(SPLITS)}, got {unknown[0]!r}."
                f"{did_you_mean(unknown[0], SPLITS)}"
            )
        num_channels = self.shape[0]
        for key, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != num_channels:
                raise DataError(
                    f"`{key}` of {self.name!r} must have {num_channels} values, one for each "
                    f"channel, got {len(values)}."
                )
        if not all(std > 0 for std in self.std):
            raise DataError(f"`std` of {self.name!r} must be above 0, got {list(self.std)}.")

    @property
    def shape(self) -> Shape:
        """Channels, height, and width of the images that `take` returns."""
        if self.seen_as is not None:
            return self.seen_as
        num_channels, height, width = self.images.shape[1:]
        return num_channels, height, width

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Read images by their indices ``[...]``, and convert them to a new array of `shape`."""
        if self.store is not None:
            # Reading beyond the end of a mapped file would crash the process.
            self.store.check_unchanged()
        pixels: np.ndarray = self.images[numbers]
        if pixels.shape[-3:] == self.shape:
            return pixels
        if pixels.shape[-3] == 1 and pixels.shape[-2:] == self.shape[1:]:
            return np.repeat(pixels, self.shape[0], axis=-3)
        new = np.empty((*pixels.shape[:-3], *self.shape), np.uint8)
        # A gray image is resized once, and then repeated for each channel.
        num_channels = min(pixels.shape[-3], self.shape[0])
        for place in np.ndindex(*pixels.shape[:-3]):
            image = pixels[place].transpose(1, 2, 0)
            new[place], _ = decode(image, size=self.shape[1:], num_channels=num_channels)
        return new

    def normalised(self, pixels: np.ndarray) -> Tensor:
        """Normalize pixels ``[..., channel, height, width]`` from `take` to inputs of a model."""
        scale, shift = scale_and_shift(self.mean, self.std)
        return torch.from_numpy(pixels).float().mul_(scale).add_(shift)

    def like(self, shape: Sequence[int], mean: Sequence[float], std: Sequence[float]) -> ImageSet:
        """Return the same images, converted for a model that was trained on other images.

        `take` resizes them, and repeats gray images for each channel or converts color images to
        gray. `shape`, `mean`, and `std` describe the images that the model was trained on.
        """
        num_channels, height, width = shape
        own, seen_as = self.images.shape[1:], (num_channels, height, width)
        if own != seen_as and not {own[0], num_channels} <= {1, 3}:
            raise DataError(
                f"the images of {self.name!r} cannot be converted from {_by(own)} to "
                f"{_by(seen_as)}; only images with 1 or 3 channels can be converted."
            )
        return replace(self, seen_as=seen_as, mean=tuple(mean), std=tuple(std))

    @classmethod
    def of_arrays(
        cls,
        name: str,
        arrays: Mapping[Split, Mapping[str, np.ndarray]],
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> ImageSet:
        """Create a dataset from uint8 arrays ``[image, channel, height, width]``, one per class.

        Each value of `mean` and `std` is 0.5 by default.
        """
        parts = {
            f"{s}/{c}": images for s, classes in arrays.items() for c, images in classes.items()
        }
        if not parts:
            raise DataError(f"{name!r} has no classes; pass the images of at least one class.")
        wanted = next(iter(parts.values())).shape[1:]
        faults = [
            f"{part.dtype} {list(part.shape)} for {key}"
            for key, part in parts.items()
            if part.ndim != 4 or part.dtype != np.uint8 or part.shape[1:] != wanted
        ]
        if faults:
            size = _by(wanted) if len(wanted) == 3 else "one size"
            raise DataError(
                f"the images of {name!r} must be uint8 arrays [image, channel, height, width], all "
                f"of {size} like the first class, got {', '.join(faults)}."
            )
        splits, begin = {}, 0
        for split, classes in arrays.items():
            count = np.array([len(images) for images in classes.values()], dtype=np.int64)
            splits[split] = Classes(tuple(classes), begin + np.cumsum(count) - count, count)
            begin += int(count.sum())
        half = (0.5,) * wanted[0]
        mean, std = half if mean is None else mean, half if std is None else std
        return cls(name, np.concatenate(list(parts.values())), splits, mean, std)


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
