"""The interface of a dataset: properties, downloads, and the search for images on disk."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._sampler import Related
from alfa.registry import Registry

# Channel statistics on the scale from 0 to 1 that normalize a model's inputs.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_TERMS = "the images belong to ImageNet; first accept its terms at https://image-net.org"

Counts = Mapping[Split, tuple[int, int | None]]
"""Classes and images of every split; None if the number of images is unknown."""


@dataclass(frozen=True, slots=True)
class Item:
    """An image that has not been read yet.

    Attributes:
        name: the name in reports, such as ``n01532829/17.jpg``.
        read: returns the bytes of an image file, or pixels, uint8 ``[height, width]`` or
            ``[height, width, channel]``.
        path: the file, if it contains only this image.
    """

    name: str
    read: Callable[[], bytes | np.ndarray]
    path: str | None = None


@dataclass(frozen=True)
class Problem:
    """A problem with an image, class, or file.

    Attributes:
        where: the name of the image, class, or file.
        what: the problem, without the name.
        fatal: the image or class is unusable; otherwise alfa changes it and uses it.
    """

    where: str
    what: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Listing:
    """The images of a dataset by split and class, in a fixed order, before any is read."""

    classes: Mapping[Split, Mapping[str, Sequence[Item]]]
    problems: Sequence[Problem] = ()


@dataclass(frozen=True)
class Workspace:
    """A folder for unpacked archives, and a callback for their progress.

    Attributes:
        path: the folder, which must exist until the images are prepared; later searches reuse
            the archives in it.
        on_unpack: called with an archive, the number of bytes read, and their total.
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
