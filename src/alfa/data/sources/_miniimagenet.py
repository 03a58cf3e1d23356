"""miniImageNet: 100 classes of ImageNet, 600 images each."""

import csv
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from alfa.data._base import Split
from alfa.data._unpickle import as_text, get_entry, load_plain
from alfa.data.sources._base import (
    IMAGENET_TERMS,
    Item,
    ManualDownload,
    Problem,
    Workspace,
    published_counts,
    register_source,
)
from alfa.data.sources._class_folders import (
    FoundClass,
    FoundClasses,
    Reader,
    is_image,
    list_files,
    read_class,
    split_of_folder,
    subfolders,
)
from alfa.data.sources._published import ClassList, PublishedSource
from alfa.errors import DataError

_CACHE = re.compile(r"mini.?imagenet.*cache.*?(train|val|test)\.(pkl|pickle)", re.IGNORECASE)
# File names start with the class: n0153282900000005.jpg belongs to n01532829.
_LEN_WNID = 9


@register_source("miniimagenet")
class MiniImageNet(PublishedSource):
    """miniImageNet with the split of Ravi & Larochelle."""

    title = "miniImageNet"
    size = 84
    published = published_counts(64, 16, 20, per_class=600)
    list_name = "miniimagenet"
    archives = ("*mini*imagenet*", "images.*", "train.*", "val.*", "test.*")
    layouts = (
        "folders {train,val,test}/<class>/*.jpg, with classes such as n01532829",
        "class folders <class>/*.jpg",
        "images/*.jpg with {train,val,test}.csv beside it, or with file names that start with the "
        "class",
        "mini-imagenet-cache-{train,val,test}.pkl",
        "any of these in a zip or tar archive, such as mini-imagenet.tar.gz",
    )
    terms = (
        "For research only, under the terms of ImageNet (https://image-net.org/download). Cite "
        "Vinyals et al., Matching Networks for One Shot Learning, 2016, and, for the split, Ravi "
        "& Larochelle, Optimization as a Model for Few-Shot Learning, 2017."
    )
    # The README of this page links to the archive on Google Drive.
    manual_download = ManualDownload(
        IMAGENET_TERMS,
        "mini-imagenet.tar.gz (1.1 GB)",
        "https://github.com/renmengye/few-shot-ssl-public",
    )

    def readers(self, work: Workspace) -> Sequence[Reader]:
        flat = partial(_read_flat, self.class_list())
        return self.read_class_folders, _read_csv, flat, _read_caches


def _read_csv(folder: Path) -> FoundClasses:
    """Read ``images/*`` and the lists of files beside it."""
    if not folder.is_dir():
        return FoundClasses()
    lists = {
        split: path
        for name, path in list_files(folder).items()
        if name.lower().endswith(".csv") and (split := split_of_folder(name[:-4]))
    }
    images = _images(subfolders(folder).get("images", folder))
    if not lists or not images:
        return FoundClasses()
    found = FoundClasses()
    for split, path in lists.items():
        for name, wanted in _labels(path).items():
            items = [images[file] for file in sorted(wanted) if file in images]
            found += FoundClasses([FoundClass(name, items, split)])
            if missing := sorted(wanted.difference(images)):
                what = (
                    f"{len(missing):,} of the {len(wanted):,} images in {path.name} are missing; "
                    f"the first is {missing[0]}"
                )
                found += FoundClasses((), [Problem(f"{split}/{name}", what, fatal=False)])
    return found


def _labels(path: Path) -> Mapping[str, set[str]]:
    """Read the files of every class from a CSV file."""
    wanted: dict[str, set[str]] = defaultdict(set)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                wanted[row["label"].strip()].add(row["filename"].strip())
    except (KeyError, AttributeError, csv.Error, UnicodeError):
        raise DataError(
            f"{path} is not a list of images: the first line must name the columns `filename` and "
            "`label`, and every other line must have both values."
        ) from None
    return wanted


def _read_flat(classes: ClassList, folder: Path) -> FoundClasses:
    """Read one folder of images whose names start with the class."""
    by_class: dict[str, list[Item]] = defaultdict(list)
    for name, item in _images(folder).items() if folder.is_dir() else ():
        if classes.name(name[:_LEN_WNID]):
            by_class[name[:_LEN_WNID]].append(item)
    return FoundClasses.of(by_class)


def _images(folder: Path) -> dict[str, Item]:
    """Return the images in a folder by file name."""
    if not any(map(is_image, list_files(folder))):
        return {}
    (images,) = read_class(folder, folder.name).classes
    return {item.name.rpartition("/")[2]: item for item in images.items}


def _read_caches(path: Path) -> FoundClasses:
    """Read the pickles of the first implementations."""
    found = FoundClasses()
    for name, file in (list_files(path) if path.is_dir() else {path.name: path}).items():
        match = _CACHE.fullmatch(name)
        if match and (split := split_of_folder(match[1])):
            found += _read_cache(file, split)
    return found


def _read_cache(file: Path, split: Split) -> FoundClasses:
    table = load_plain(file)
    images, classes = (get_entry(table, name, where=file) for name in ("image_data", "class_dict"))
    valid = isinstance(images, np.ndarray) and isinstance(classes, dict)
    if not valid or images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(
            f"{file} must have `image_data`, a uint8 array [image, height, width, channel], and "
            "`class_dict`, the images of every class; download it again."
        )
    found = []
    for key, numbers in classes.items():
        name = as_text(key)
        try:
            rows = sorted(map(int, numbers))
        except (TypeError, ValueError):
            raise DataError(f"{file} has no list of images of {name}; download it again.") from None
        if rows and not 0 <= rows[0] <= rows[-1] < len(images):
            raise DataError(
                f"{file} has {len(images)} images, but assigns the images {rows[0]} to {rows[-1]} "
                f"to {name}; download it again."
            )
        items = [Item(f"{name}/{row}", partial(np.asarray, images[row])) for row in rows]
        found.append(FoundClass(name, items, split))
    return FoundClasses(found)
