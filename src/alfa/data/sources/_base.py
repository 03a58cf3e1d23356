"""What a source of images is: it finds the images of a dataset in the layouts people have."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alfa.data._base import Split
from alfa.registry import Registry

# Of a model's inputs: channel by channel, on the scale from 0 to 1.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.5071, 0.4847, 0.4408), (0.2675, 0.2565, 0.2761)


@dataclass(frozen=True, slots=True)
class Item:
    """One image that has not been read yet.

    Attributes:
        name: what a report calls it, such as ``n01532829/17.jpg``.
        read: gives the bytes of an image file, or pixels, uint8 ``[height, width]`` or
            ``[height, width, channel]``.
        path: of the file that holds this image and nothing else, where there is one.
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
        problems: what was wrong already.
    """

    classes: Mapping[Split, Mapping[str, Sequence[Item]]]
    problems: Sequence[Problem] = field(default_factory=tuple)


@dataclass(frozen=True)
class Workspace:
    """Where a source unpacks what it must, and whom it tells how far that is.

    Attributes:
        path: a folder; it stays until the images are prepared, and what is there already need not
            be unpacked again.
        on_unpack: is told an archive, its bytes that were read, and all of them.
    """

    path: Path
    on_unpack: Callable[[Path, int, int], None] = lambda archive, done, total: None


class Source(abc.ABC):
    """A dataset of images, and how to find it on disk.

    To add one, subclass, set the attributes, implement `find`, and decorate the class with
    ``@register_source("my-dataset")``. Its constructor takes keyword-only options.

    Attributes:
        title: what people call it.
        size: the side of its images where none is asked for.
        num_channels: 3, or 1 for grey images.
        mean: of every channel, to normalise a model's inputs.
        std: of every channel, likewise.
        published: classes and images of every split; None for images that nobody counted, and
            empty where all depends on the user.
        layouts: what `find` accepts, one line each, for help and errors.
        terms: what one may do with the images, and whom to cite.
    """

    title: str
    size: int
    num_channels: int = 3
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    published: Mapping[Split, tuple[int, int | None]] = {}
    layouts: Sequence[str] = ()
    terms: str = ""

    @abc.abstractmethod
    def find(self, path: Path, *, work: Workspace) -> Listing:
        """The images under a path.

        Args:
            path: a folder or an archive in one of the layouts.
            work: for whatever must be unpacked first.

        Raises:
            DataError: nothing of the dataset is there; says what was looked for.
        """


SOURCES: Registry[Source] = Registry("dataset")
register_source = SOURCES.register
