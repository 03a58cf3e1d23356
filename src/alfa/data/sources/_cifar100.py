"""CIFAR-FS and FC100: two splits of CIFAR-100."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from alfa.data._unpickle import as_text, get_entry, get_texts, load_plain
from alfa.data.sources._base import (
    Item,
    Problem,
    RemoteFile,
    Workspace,
    published_counts,
    register_source,
)
from alfa.data.sources._class_folders import FoundClasses, Reader
from alfa.data.sources._published import PublishedSource, class_folders
from alfa.errors import DataError

_SIDE = 32
_LAYOUTS = (
    "cifar-100-python/{train,test,meta}, CIFAR-100 as its publisher packs it",
    "folders {train,val,test}/<class>/*.png, where a class is called aquarium_fish",
    "class folders <class>/*.png",
)
_TERMS = "Cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009, and "


class _CIFAR100(PublishedSource):
    """The images of CIFAR-100; its subclasses split them."""

    size = _SIDE
    mean, std = (0.5071, 0.4847, 0.4408), (0.2675, 0.2565, 0.2761)
    # Address and MD5 (eb9058c3a382ffc7106e4002c42a8d85): torchvision.datasets.cifar, CIFAR100.
    # SHA-256 of the same address: keras.datasets.cifar100.
    downloads = (
        RemoteFile(
            url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            name="cifar-100-python.tar.gz",
            num_bytes=169_001_437,
            checksum="sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            page="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
    )

    def readers(self, work: Workspace) -> Sequence[Reader]:
        classes = self.class_list()
        # Its classes have their numbers in the order of their names.
        return partial(read_pickles, sorted(classes.split_of)), class_folders(classes)


@register_source("cifar-fs")
class CIFARFS(_CIFAR100):
    """CIFAR-FS: the classes of CIFAR-100, split at random."""

    title = "CIFAR-FS"
    published = published_counts(64, 16, 20, per_class=600)
    list_name = "cifar-fs"
    archives = ("*cifar*100*", "*cifar*fs*")
    layouts = (
        *_LAYOUTS,
        "any of these in a zip or tar archive, such as cifar-100-python.tar.gz or cifar100.zip",
    )
    terms = (
        f"{_TERMS}for the split, Bertinetto et al., Meta-Learning with Differentiable Closed-Form "
        "Solvers, 2019."
    )


@register_source("fc100")
class FC100(_CIFAR100):
    """FC100: the classes of CIFAR-100, split by superclass.

    Its test classes are partly training classes of CIFAR-FS.
    """

    title = "FC100"
    published = published_counts(60, 20, 20, per_class=600)
    list_name = "fc100"
    archives = ("*cifar*100*", "*fc*100*")
    layouts = (
        *_LAYOUTS,
        "any of these in a zip or tar archive, such as cifar-100-python.tar.gz",
    )
    terms = (
        f"{_TERMS}for the split, Oreshkin et al., TADAM: Task Dependent Adaptive Metric for "
        "Improved Few-Shot Learning, 2018."
    )


def read_pickles(names: Sequence[str], folder: Path) -> FoundClasses:
    """The pickles of CIFAR-100.

    Args:
        names: of the classes, if the file with them is missing.
        folder: that contains the pickles.
    """
    meta = folder / "meta"
    parts = {part: folder / part for part in ("train", "test") if (folder / part).is_file()}
    if not parts or not (meta.is_file() or folder.name == "cifar-100-python"):
        return FoundClasses()
    if meta.is_file():
        names = get_texts(load_plain(meta), "fine_label_names", where=meta)
    items: dict[str, list[Item]] = defaultdict(list)
    for path in parts.values():
        for name, images in _read_part(path, names).items():
            items[name] += images
    # The publisher's order is random; by name it is that of any copy.
    classes = {name: sorted(images, key=lambda item: item.name) for name, images in items.items()}
    problems = [
        Problem(f"{folder.name}/{part}", "the file is not there, nor are its images", fatal=False)
        for part in ("train", "test")
        if part not in parts
    ]
    return FoundClasses.of(classes, problems)


def _read_part(path: Path, names: Sequence[str]) -> Mapping[str, list[Item]]:
    table = load_plain(path)
    pixels, labels, files = (
        get_entry(table, key, where=path) for key in ("data", "fine_labels", "filenames")
    )
    if not _is_valid(pixels, labels, files, len(names)):
        raise DataError(
            f"{path} must have `data`, a uint8 array [image, {3 * _SIDE * _SIDE}], and a number of "
            f"one of {len(names)} classes in `fine_labels` and a name in `filenames` for each "
            "image, but has others; get it again."
        )
    items = defaultdict(list)
    images = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    for label, file, image in zip(labels, files, images, strict=True):
        name = names[label]
        items[name].append(Item(f"{name}/{as_text(file)}", partial(np.asarray, image)))
    return items


def _is_valid(pixels: Any, labels: Any, files: Any, num_classes: int) -> bool:
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        return False
    if not isinstance(labels, list) or not isinstance(files, list):
        return False
    known = all(type(label) is int and 0 <= label < num_classes for label in labels)
    return known and pixels.shape == (len(labels), 3 * _SIDE * _SIDE) and len(files) == len(labels)
