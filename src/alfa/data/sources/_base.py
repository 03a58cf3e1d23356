"""The interface of a dataset: its properties, its downloads, and how to find it on disk."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._sampler import Related
from alfa.registry import Registry

# Channel statistics on the scale from 0 to 1, which normalize a model's inputs.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_TERMS = (
    "its images are ImageNet's, whose terms you must accept at https://image-net.org first"
)

Counts = Mapping[Split, tuple[int, int | None]]
"""Classes and images of every split; None for images that were never counted."""


@dataclass(frozen=True, slots=True)
class Item:
    """One image that has not been read yet.

    Attributes:
        name: what a report calls it, such as ``n01532829/17.jpg``.
        read: returns the bytes of an image file, or pixels, uint8 ``[height, width]`` or
            ``[height, width, channel]``.
        path: of the file, if it contains this image and nothing else.
    """

    name: str
    read: Callable[[], bytes | np.ndarray]
    path: str | None = None


@dataclass(frozen=True)
class Problem:
    """Something wrong with a dataset, in one sentence.

    Attributes:
        where: the image, class or file, by name.
        what: is wrong with it.
        fatal: the image or class cannot be used; otherwise it is changed, and can.
    """

    where: str
    what: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Listing:
    """The images of a dataset, before any of them is read.

    Attributes:
        classes: for every split the classes by name, each with its images in a fixed order.
        problems: found so far.
    """

    classes: Mapping[Split, Mapping[str, Sequence[Item]]]
    problems: Sequence[Problem] = field(default_factory=tuple)


@dataclass(frozen=True)
class Workspace:
    """A folder for unpacked archives, and a callback for their progress.

    Attributes:
        path: the folder; it stays until the images are prepared, and archives in it need not be
            unpacked again.
        on_unpack: is called with an archive, the number of its bytes read, and their total.
    """

    path: Path
    on_unpack: Callable[[Path, int, int], None] = lambda archive, done, total: None


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be downloaded.

    Attributes:
        url: its address.
        name: of the file on disk.
        num_bytes: its size.
        checksum: such as ``sha256:...``.
        page: the web page that links to it, in case the address has moved.
        tried: whether this code has downloaded it from there.
    """

    url: str
    name: str
    num_bytes: int
    checksum: str
    page: str
    tried: bool = False


@dataclass(frozen=True)
class ManualDownload:
    """Instructions for a dataset that users must download themselves.

    Attributes:
        reason: for it.
        files: to download.
        page: the web page that links to them.
        steps: further steps, each followed by a comma.
    """

    reason: str
    files: str
    page: str
    steps: str = ""


class Source(abc.ABC):
    """A dataset of images, and how to find it on disk.

    To add one, subclass, set the attributes, implement `find`, and decorate the class with
    ``@register_source("my-dataset")``. Its constructor takes keyword-only options.

    Attributes:
        title: what people call it.
        size: the default side of its images.
        num_channels: 3, or 1 for grey images.
        mean: of every channel, to normalise a model's inputs.
        std: of every channel, likewise.
        published: classes and images of every published split; empty if there is none.
        layouts: what `find` accepts, one line each, for help and errors.
        terms: the license, and the papers to cite.
        downloads: files that `alfa data download` fetches.
        manual_download: instructions, if users must download it themselves.
        dark_ink: of drawings, whether they are dark on white or light on black; None for photos.
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
        """The images under a path.

        Args:
            path: a folder or an archive in one of the layouts.
            work: for archives that must be unpacked first.

        Raises:
            DataError: nothing of the dataset is there; lists the layouts.
        """

    def related_classes(self, split: Split, names: Sequence[str]) -> Related | None:
        """Which classes of a split go together in a task of varying size; None for any."""
        return None


SOURCES: Registry[Source] = Registry("dataset")
register_source = SOURCES.register


def published_counts(
    train: int,
    val: int,
    test: int,
    *,
    images: Sequence[int | None] = (None, None, None),
    per_class: int | None = None,
) -> Counts:
    """The number of classes and images of each split that has classes.

    Args:
        train: training classes.
        val: validation classes.
        test: test classes.
        images: of each split.
        per_class: images of every class, in place of `images`.
    """
    classes = (train, val, test)
    if per_class is not None:
        images = [count * per_class for count in classes]
    return {
        split: (num_classes, num_images)
        for split, num_classes, num_images in zip(SPLITS, classes, images, strict=True)
        if num_classes
    }
