"""CIFAR-100 as its publisher packs it: the images of both CIFAR-FS and FC100."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from alfa.data._base import Split
from alfa.data._unpickle import entry, load_plain, text, texts
from alfa.data.sources._base import Item, Listing, Problem, Source, Workspace
from alfa.data.sources._folders import ClassFound, Found
from alfa.data.sources._published import class_folders, class_list, find_published
from alfa.errors import DataError

SIDE = 32
LAYOUTS = (
    "cifar-100-python/{train,test,meta}, CIFAR-100 as its publisher packs it",
    "folders {train,val,test}/<class>/*.png, where a class is called aquarium_fish",
    "class folders <class>/*.png",
)
TERMS = "Cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009, and "


def find_cifar(
    source: Source, name: str, path: Path, *, work: Workspace, archives: Sequence[str]
) -> Listing:
    """Find CIFAR-100 and split it by the list called `name`."""
    classes = class_list(name)
    return find_published(
        source,
        classes,
        path,
        work=work,
        # Its classes have their numbers in the order of their names.
        readers=(partial(read_pickles, sorted(classes.split_of)), class_folders(classes)),
        archives=("*cifar*100*", *archives),
    )


def read_pickles(names: Sequence[str], folder: Path) -> Found:
    """The pickles of CIFAR-100.

    Args:
        names: of the classes, where the file that has them is missing.
        folder: that holds the pickles.
    """
    meta = folder / "meta"
    parts = {part: folder / part for part in ("train", "test") if (folder / part).is_file()}
    if not parts or not (meta.is_file() or folder.name == "cifar-100-python"):
        return Found()
    if meta.is_file():
        names = texts(load_plain(meta), "fine_label_names", where=meta)
    items: dict[str, list[Item]] = defaultdict(list)
    for path in parts.values():
        for name, images in _read_part(path, names).items():
            items[name] += images
    # The publisher's order is random; by name it is that of any copy.
    found = [ClassFound(name, sorted(images, key=_name)) for name, images in items.items()]
    problems = [
        Problem(f"{folder.name}/{part}", "the file is not there, nor are its images", fatal=False)
        for part in ("train", "test")
        if part not in parts
    ]
    return Found(found, problems)


def _name(item: Item) -> str:
    return item.name


def _read_part(path: Path, names: Sequence[str]) -> Mapping[str, list[Item]]:
    table = load_plain(path)
    pixels, labels, files = (
        entry(table, key, where=path) for key in ("data", "fine_labels", "filenames")
    )
    if not _is_right(pixels, labels, files, len(names)):
        raise DataError(
            f"{path} must have `data`, a uint8 array [image, {3 * SIDE * SIDE}], and a number of "
            f"one of {len(names)} classes in `fine_labels` and a name in `filenames` for each "
            "image, but has others; get it again."
        )
    items = defaultdict(list)
    images = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    for label, file, image in zip(labels, files, images, strict=True):
        name = names[label]
        items[name].append(Item(f"{name}/{text(file)}", partial(np.asarray, image)))
    return items


def _is_right(pixels: Any, labels: Any, files: Any, num_classes: int) -> bool:
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        return False
    if not isinstance(labels, list) or not isinstance(files, list):
        return False
    known = all(type(label) is int and 0 <= label < num_classes for label in labels)
    return known and pixels.shape == (len(labels), 3 * SIDE * SIDE) and len(files) == len(labels)


def of_600(train: int, val: int, test: int) -> dict[Split, tuple[int, int]]:
    """Classes and images of splits whose classes have 600 images each."""
    return {"train": (train, 600 * train), "val": (val, 600 * val), "test": (test, 600 * test)}
