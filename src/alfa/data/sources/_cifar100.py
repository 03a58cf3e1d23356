"""CIFAR-FS and FC100: two splits of CIFAR-100."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

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
from alfa.data.sources._published import PublishedSource
from alfa.errors import DataError

_SIDE = 32
_LAYOUTS = (
    "cifar-100-python/{train,test,meta}, the publisher's layout of CIFAR-100",
    "folders {train,val,test}/<class>/*.png, with classes such as aquarium_fish",
    "class folders <class>/*.png",
)
_TERMS = "Cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009, and "


class _CIFAR100(PublishedSource):
    size = _SIDE
    mean, std = (0.5071, 0.4847, 0.4408), (0.2675, 0.2565, 0.2761)
    # Address and MD5 (eb9058c3a382ffc7106e4002c42a8d85): torchvision.datasets.cifar, CIFAR100.
    # SHA-256 for the same address: keras.datasets.cifar100.
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
        # The publisher numbers the classes in alphabetical order.
        names = sorted(self.class_list().split_of)
        return partial(_read_pickles, names), self.read_class_folders


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

    Some of its test classes are training classes of CIFAR-FS.
    """

    title = "FC100"
    published = published_counts(60, 20, 20, per_class=600)
    list_name = "fc100"
    archives = ("*cifar*100*", "*fc*100*")
    layouts = (*_LAYOUTS, "any of these in a zip or tar archive, such as cifar-100-python.tar.gz")
    terms = (
        f"{_TERMS}for the split, Oreshkin et al., TADAM: Task Dependent Adaptive Metric for "
        "Improved Few-Shot Learning, 2018."
    )


def _read_pickles(names: Sequence[str], folder: Path) -> FoundClasses:
    """Read the pickles of CIFAR-100; `names` replaces a missing file of class names."""
    meta = folder / "meta"
    parts = [part for part in ("train", "test") if (folder / part).is_file()]
    if not parts or not (meta.is_file() or folder.name == "cifar-100-python"):
        return FoundClasses()
    if meta.is_file():
        names = get_texts(load_plain(meta), "fine_label_names", where=meta)
    classes: dict[str, list[Item]] = defaultdict(list)
    for part in parts:
        _read_part(folder / part, names, classes)
    # Order by name instead of the publisher's random order, so that all copies agree.
    for items in classes.values():
        items.sort(key=lambda item: item.name)
    problems = [
        Problem(f"{folder.name}/{part}", "the file and its images are missing", fatal=False)
        for part in ("train", "test")
        if part not in parts
    ]
    return FoundClasses.of(classes, problems)


def _read_part(path: Path, names: Sequence[str], classes: dict[str, list[Item]]) -> None:
    table = load_plain(path)
    pixels, labels, files = (
        get_entry(table, key, where=path) for key in ("data", "fine_labels", "filenames")
    )
    valid = (
        isinstance(pixels, np.ndarray)
        and pixels.dtype == np.uint8
        and isinstance(labels, list)
        and isinstance(files, list)
        and pixels.shape == (len(labels), 3 * _SIDE * _SIDE)
        and len(files) == len(labels)
        and all(type(label) is int and 0 <= label < len(names) for label in labels)
    )
    if not valid:
        raise DataError(
            f"{path} must have `data`, a uint8 array [image, {3 * _SIDE * _SIDE}], and for each "
            f"image a number below {len(names)} in `fine_labels` and a name in `filenames`; "
            "download it again."
        )
    images = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    for label, file, image in zip(labels, files, images, strict=True):
        item = Item(f"{names[label]}/{as_text(file)}", partial(np.asarray, image))
        classes[names[label]].append(item)
