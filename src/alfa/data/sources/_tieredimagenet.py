"""tieredImageNet: 608 classes of ImageNet, split by what they have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from alfa.data._base import SPLITS, Split
from alfa.data._unpickle import entry, load_plain, texts
from alfa.data.sources._base import Item, Listing, Source, Workspace, register_source
from alfa.data.sources._folders import ClassFound, Found
from alfa.data.sources._published import ClassList, class_folders, class_list, find_published
from alfa.errors import DataError


@register_source("tieredimagenet")
class TieredImageNet(Source):
    """tieredImageNet."""

    title = "tieredImageNet"
    size = 84
    published: Mapping[Split, tuple[int, int]] = {
        "train": (351, 448_695),
        "val": (97, 124_261),
        "test": (160, 206_209),
    }
    layouts = (
        "{train,val,test}_images_png.pkl with {train,val,test}_labels.pkl beside them",
        "folders {train,val,test}/<class>/*.jpg, where a class is called n01530575",
        "class folders <class>/*.jpg, such as those of ImageNet's training images",
        "any of these in a zip or tar archive, such as tiered-imagenet.tar",
    )
    terms = (
        "For research only, under the terms of ImageNet (https://image-net.org/download). Cite "
        "Ren et al., Meta-Learning for Semi-Supervised Few-Shot Classification, 2018."
    )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        classes = class_list("tieredimagenet")
        return find_published(
            self,
            classes,
            path,
            work=work,
            readers=(class_folders(classes), partial(_read_pickles, classes, work)),
            archives=("*tiered*imagenet*",),
            cut_from=class_list("md-ilsvrc"),
        )


def _read_pickles(classes: ClassList, work: Workspace, folder: Path) -> Found:
    pairs: dict[Split, tuple[Path, Path]] = {
        split: (images, folder / f"{split}_labels.pkl")
        for split in SPLITS
        if (images := folder / f"{split}_images_png.pkl").is_file()
    }
    absent = [labels.name for _, labels in pairs.values() if not labels.is_file()]
    if absent:
        raise DataError(
            f"{folder} has images of tieredImageNet, but not what they show: put "
            f"{', '.join(absent)} beside them."
        )
    found = Found()
    for split, (images, labels) in pairs.items():
        found += _read_pair(classes, work, split, images, labels)
    return found


def _read_pair(
    classes: ClassList, work: Workspace, split: Split, images: Path, labels: Path
) -> Found:
    table = load_plain(labels)
    try:
        numbers = np.asarray(entry(table, "label_specific", where=labels))
    except ValueError:
        raise DataError(f"{labels} has no list of numbers; get it again.") from None
    names = texts(table, "label_specific_str", where=labels)
    file, bounds = _flattened(images, work)
    if numbers.shape != (len(bounds) - 1,) or not np.isin(numbers, range(len(names))).all():
        raise DataError(
            f"{labels} does not belong to {images.name}: it has {numbers.size:,} labels of "
            f"{len(names):,} classes for {len(bounds) - 1:,} images; get both again."
        )
    # The published files call classes by words, such as "house finch", and the lists by numbers.
    is_certain = not all(map(classes.name, names))
    found = []
    for number, name in enumerate(names):
        items = [
            Item(f"{name}/{row}", partial(_read_part, file, int(bounds[row]), int(bounds[row + 1])))
            for row in np.flatnonzero(numbers == number)
        ]
        # Two classes that share their words are two classes.
        label = name if names.count(name) == 1 else f"{name} ({number})"
        found.append(ClassFound(label, items, split, is_certain))
    return Found(found)


def _flattened(pickle: Path, work: Workspace) -> tuple[str, np.ndarray]:
    """All images of a pickle in one file, and where each begins, with the end of the last.

    A pickle can only be read whole, and the largest one is too large to be kept in memory.
    """
    status = pickle.stat()
    name = f"{pickle.stem}-{status.st_size}-{status.st_mtime_ns}"
    content, index = work.path / f"{name}.bin", work.path / f"{name}.npy"
    if not index.is_file():
        images = load_plain(pickle)
        if not isinstance(images, list):
            raise DataError(f"{pickle} is not a list of images; get it again.")
        work.path.mkdir(parents=True, exist_ok=True)
        lengths = [0]
        with _whole(content) as file:
            for image in images:
                lengths.append(file.write(_encoded(image, pickle)))
        with _whole(index) as file:
            np.save(file, np.cumsum(lengths))
    return str(content), np.load(index, allow_pickle=False)


def _encoded(image: object, pickle: Path) -> bytes:
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return image.tobytes()
    if isinstance(image, bytes):
        return image
    raise DataError(
        f"{pickle} must be a list of PNG files, each an array of uint8, but one of them is "
        f"{getattr(image, 'dtype', type(image).__name__)}; get it again."
    )


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there once all of it is written."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _read_part(path: str, begin: int, end: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(end - begin)
