"""Images by split and class, in memory or mapped from disk."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from alfa.data._base import SPLITS, Signature, Split, Tasks
from alfa.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from alfa.data._store import Store

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""


def scale_and_shift(mean: Sequence[float], std: Sequence[float]) -> tuple[Tensor, Tensor]:
    """What pixels from 0 to 255 are multiplied by, and what is added, ``[channel, 1, 1]`` each."""
    of_channels = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (mean, std))
    mean_, std_ = of_channels
    return (1 / (255 * std_)).float(), (-mean_ / std_).float()


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of one split.

    Attributes:
        names: of the classes.
        first: where the images of each class begin, ``[class]``.
        count: how many each class has, ``[class]``.
    """

    names: Sequence[str]
    first: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A dataset of images of one size.

    Attributes:
        name: of the dataset.
        images: uint8 ``[image, channel, height, width]``, class after class; `take` gives them
            as a model is to see them.
        splits: the classes of each split that there is.
        mean: of every channel on the scale from 0 to 1, to normalise a model's inputs.
        std: of every channel, likewise.
        seen_as: channels, height and width that `take` brings images to; None leaves them as
            they are.
        digest: identifies prepared images; empty for images in memory.
        store: that the images are mapped from; None for images in memory.
        source: the dataset that they were prepared from, if `name` is another one.

    Raises:
        DataError: these are not images, or the values to normalise by do not fit them.

    Example:
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
                f"width], but are {self.images.dtype} {list(self.images.shape)}."
            )
        unknown = [split for split in self.splits if split not in SPLITS]
        if unknown:
            raise DataError(
                f"{self.name!r} has the split {unknown[0]!r}, but splits are "
                f"{', '.join(SPLITS)}.{did_you_mean(unknown[0], SPLITS)}"
            )
        num_channels = self.shape[0]
        for key, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != num_channels:
                raise DataError(
                    f"`{key}` of {self.name!r} has {len(values)} values, but must have one for "
                    f"each of {num_channels} channels."
                )
        if not all(std > 0 for std in self.std):
            raise DataError(f"`std` of {self.name!r} is {list(self.std)}, but must be above 0.")

    @property
    def shape(self) -> Shape:
        """Channels, height and width of what `take` gives."""
        if self.seen_as is not None:
            return self.seen_as
        _, num_channels, height, width = self.images.shape
        return num_channels, height, width

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Some of the images; only these are read and converted.

        Args:
            numbers: which ones, ``[...]``.

        Returns:
            uint8 ``[..., channel, height, width]``, of `shape`, and a copy.
        """
        if self.store is not None:
            # To read beyond the end of a mapped file would end the process.
            self.store.check_unchanged()
        pixels: np.ndarray = self.images[numbers]
        if pixels.shape[-3:] == self.shape:
            return pixels
        if pixels.shape[-3] == 1 and pixels.shape[-2:] == self.shape[1:]:
            return np.repeat(pixels, self.shape[0], axis=-3)
        new = np.empty((*pixels.shape[:-3], *self.shape), np.uint8)
        for place in np.ndindex(*pixels.shape[:-3]):
            new[place] = _converted(pixels[place], self.shape)
        return new

    def normalised(self, pixels: np.ndarray) -> Tensor:
        """What a model is given for pixels that `take` gave, ``[..., channel, height, width]``."""
        scale, shift = self._scale_and_shift
        return torch.from_numpy(pixels).float().mul_(scale).add_(shift)

    @functools.cached_property
    def _scale_and_shift(self) -> tuple[Tensor, Tensor]:
        return scale_and_shift(self.mean, self.std)

    def like(self, shape: Sequence[int], mean: Sequence[float], std: Sequence[float]) -> ImageSet:
        """The same images as a model that was trained on others must see them.

        They are stretched to its size; grey ones are repeated for each channel, and coloured ones
        become grey by their luma. Nothing is converted before `take` asks for it.

        Args:
            shape: channels, height and width of the images that the model was trained on.
            mean: that these were normalised by.
            std: likewise.

        Raises:
            DataError: images of so many channels cannot be brought to that shape.

        Example:
            >>> import numpy as np
            >>> from alfa.data import ImageSet, Strokes
            >>> grey = Strokes(num_classes=5, num_examples=2).images()
            >>> seen = grey.like((3, 32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
            >>> seen.shape, seen.take(np.array([0, 1])).shape
            ((3, 32, 32), (2, 3, 32, 32))
        """
        num_channels, height, width = shape
        own, seen_as = self.images.shape[1:], (num_channels, height, width)
        if own != seen_as and not {own[0], num_channels} <= {1, 3}:
            raise DataError(
                f"the images of {self.name!r} are {_by(own)}, which cannot become {_by(seen_as)}; "
                "only images of 1 or 3 channels can be converted."
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
        """Images that are in memory.

        Args:
            name: of the dataset.
            arrays: for each split and class, uint8 ``[image, channel, height, width]``.
            mean: to normalise by; 0.5 for every channel by default.
            std: to normalise by; 0.5 for every channel by default.

        Raises:
            DataError: the arrays are not images of one shape; names all that are not.
        """
        parts = {(s, c): images for s, classes in arrays.items() for c, images in classes.items()}
        _check_arrays(name, parts)
        splits: dict[Split, Classes] = {}
        begin = 0
        for split, classes in arrays.items():
            count = np.array([len(images) for images in classes.values()], dtype=np.int64)
            first = begin + np.cumsum(count) - count
            begin += int(count.sum())
            splits[split] = Classes(tuple(classes), first, count)
        pixels = np.concatenate(list(parts.values()))
        half = (0.5,) * pixels.shape[1]
        return cls(
            name, pixels, splits, half if mean is None else mean, half if std is None else std
        )


class ImageTasks(Tasks):
    """Tasks whose inputs come from sets of images.

    Attributes:
        sources: the sets, all of one shape and normalisation.
    """

    loss = "cross_entropy"
    sources: Sequence[ImageSet]

    def signature(self) -> Signature:
        first = self.sources[0]
        return replace(
            super().signature(),
            mean=tuple(first.mean),
            std=tuple(first.std),
            data=" ".join(map(self.source_digest, self.sources)).strip(),
        )

    def source_digest(self, source: ImageSet) -> str:
        """Identifies the tasks of a source, if it was prepared."""
        return source.digest

    def stamp(self) -> str:
        return " ".join(store.stamp for store in self._stores())

    def names_digest(self, split: Split) -> str:
        return " ".join(store.names_digest(split) for store in self._stores())

    def verify(self) -> None:
        for store in self._stores():
            store.check_pixels()

    def _stores(self) -> list[Store]:
        return [source.store for source in self.sources if source.store is not None]


def _check_arrays(name: str, parts: Mapping[tuple[Split, str], np.ndarray]) -> None:
    if not parts:
        raise DataError(f"{name!r} has no classes; give the images of at least one.")
    wanted = next(iter(parts.values())).shape[1:]
    faults = [
        f"{split}/{key} is {part.dtype} {list(part.shape)}"
        for (split, key), part in parts.items()
        if part.ndim != 4 or part.dtype != np.uint8 or part.shape[1:] != wanted
    ]
    if faults:
        size = _by(wanted) if len(wanted) == 3 else "one size"
        raise DataError(
            f"the images of {name!r} must be uint8 arrays [image, channel, height, width], all of "
            f"{size} like the first class, but {', '.join(faults)}."
        )


def _converted(image: np.ndarray, shape: Shape) -> np.ndarray:
    """An image ``[channel, height, width]`` brought to another shape."""
    num_channels, height, width = shape
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0).copy())
    if num_channels == 1:
        picture = picture.convert("L")
    pixels = np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS))
    return np.broadcast_to(pixels, shape) if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
