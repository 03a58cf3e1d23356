"""The interface of a dataset: properties, downloads, and the search for images on disk."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._decode import read_image_file
from alfa.data._sampler import Related
from alfa.registry import Registry

# Channel statistics on the scale from 0 to 1 that normalize a model's inputs.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_TERMS = "the images belong to ImageNet; first accept its terms at https://image-net.org"

Counts = Mapping[Split, tuple[int, int | None]]
"""Classes and images of every split; None if the number of images is unknown."""

ItemsOfSplits = Mapping[Split, Mapping[str, Sequence["Item"]]]
"""The images of every class of every split."""


@dataclass(frozen=True, slots=True)
class Item:
    """An image that has not been read yet.

    `read` returns the bytes of an image file, or pixels, uint8 ``[height, width]`` or
    ``[height, width, channel]``.
    """

    name: str  # the name in reports, such as n01532829/17.jpg
    read: Callable[[], bytes | np.ndarray]
    path: str | None = None  # the file, if it contains only this image

    @classmethod
    def of_file(cls, name: str, path: Path) -> Item:
        return cls(name, partial(read_image_file, str(path)), str(path))


@dataclass(frozen=True)
class Problem:
    """A problem with an image, class, or file."""

    where: str  # the name of the image, class, or file
    what: str  # the problem, without the name
    fatal: bool = True  # the image or class is unusable; otherwise alfa changes it and uses it

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Listing:
    """The images of a dataset by split and class, in a fixed order, before any is read."""

    classes: ItemsOfSplits
    problems: Sequence[Problem] = ()

    @classmethod
    def of(cls, found: ItemsOfSplits, problems: Iterable[Problem], published: Counts) -> Listing:
        """List the classes with images; report empty ones and differences from `published`."""
        problems, classes = list(problems), {}
        for split in SPLITS:
            in_order = sorted(found.get(split, {}).items())
            problems += [
                Problem(f"{split}/{name}", "the class has no images")
                for name, items in in_order
                if not items
            ]
            if full := {name: items for name, items in in_order if items}:
                classes[split] = full
        for split, (num_classes, num_images) in published.items():
            members = classes.get(split, {})
            count = sum(map(len, members.values()))
            if len(members) != num_classes or num_images not in (None, count):
                images = "" if num_images is None else f"{num_images:,} in "
                what = (
                    f"{count:,} images in {len(members):,} classes, but the published split has "
                    f"{images}{num_classes:,}"
                )
                problems.append(Problem(split, what, fatal=False))
        return cls(classes, problems)


@dataclass(frozen=True)
class Workspace:
    """A folder for unpacked archives, and a callback for their progress.

    The folder must exist until the images are prepared; later searches reuse the archives in it.
    `on_unpack` is called with an archive, the number of bytes read, and their total.
    """

    path: Path
    on_unpack: Callable[[Path, int, int], None] = lambda archive, done, total: None


@dataclass(frozen=True)
class RemoteFile:
    """A file to download; `page` links to it, and `tried` means that alfa has downloaded it."""

    url: str
    name: str
    num_bytes: int
    checksum: str
    page: str
    tried: bool = False


@dataclass(frozen=True)
class ManualDownload:
    """Instructions for a dataset that users must download themselves.

    Each of the `steps` that follow the download of `files` from `page` ends with a comma.
    """

    reason: str
    files: str
    page: str
    steps: str = ""


class Source(abc.ABC):
    """A dataset of images, and the search for it on disk.

    To add one, subclass `Source`, set the attributes, implement `find`, and decorate the class
    with ``@register_source("my-dataset")``. The constructor takes keyword-only options.

    Attributes:
        title: the name in messages.
        size: the default side of the images.
        num_channels: 3, or 1 for gray images.
        mean: the mean of each channel, to normalize a model's inputs.
        std: the standard deviation of each channel, to normalize a model's inputs.
        published: classes and images of every published split; empty without such a split.
        layouts: the layouts that `find` accepts, one line each, for help and errors.
        terms: the license, and the papers to cite.
        downloads: files that `alfa data download` downloads.
        manual_download: instructions, if users must download the dataset themselves.
        dark_ink: True for drawings in dark ink on white, False for light on black, None for photos.
        crop_filter: crop the center square of each image, and resize it with this filter; None to
            resize the whole image without keeping its aspect ratio, as in the published datasets.
    """

    title: str
    size: int
    num_channels: int = 3
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    published: Mapping[Split, tuple[int, int | None]] = {}
    layouts: Sequence[str] = ()
    terms: str = ""
    downloads: Sequence[RemoteFile] = ()
    manual_download: ManualDownload | None = None
    dark_ink: bool | None = None
    crop_filter: Literal["bilinear", "bicubic"] | None = None

    @abc.abstractmethod
    def find(self, path: Path, *, work: Workspace) -> Listing:
        """Find the images under a path.

        Args:
            path: a folder or an archive in one of the layouts.
            work: the folder for unpacked archives.

        Raises:
            DataError: the path contains nothing of the dataset; lists the layouts.
        """

    def related_classes(self, split: Split, names: Sequence[str]) -> Related | None:
        """Return the classes that form tasks of varying size; None for any classes."""
        return None


SOURCES: Registry[Source] = Registry("dataset")
register_source = SOURCES.register


def published_counts(
    *num_classes: int,
    images: Sequence[int | None] = (None, None, None),
    per_class: int | None = None,
) -> Counts:
    """Return the counts of the splits train, val, and test, without splits of 0 classes.

    The images are given for each split, or as the number of images per class.
    """
    if per_class is not None:
        images = [per_class * count for count in num_classes]
    counts = zip(SPLITS, num_classes, images, strict=True)
    return {split: (classes, of_split) for split, classes, of_split in counts if classes}
