"""tieredImageNet: 608 classes of ImageNet, split by category."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from alfa._io import write_atomic
from alfa.data._base import SPLITS, Split
from alfa.data._unpickle import get_entry, get_texts, load_plain
from alfa.data.sources._base import (
    IMAGENET_TERMS,
    Item,
    ManualDownload,
    Problem,
    Workspace,
    published_counts,
    register_source,
)
from alfa.data.sources._class_folders import FoundClass, FoundClasses, Reader
from alfa.data.sources._published import ClassList, PublishedSource, load_class_list
from alfa.errors import DataError


@register_source("tieredimagenet")
class TieredImageNet(PublishedSource):
    """tieredImageNet."""

    title = "tieredImageNet"
    size = 84
    published = published_counts(351, 97, 160, images=(448_695, 124_261, 206_209))
    list_name = "tieredimagenet"
    archives = ("*tiered*imagenet*",)
    layouts = (
        "{train,val,test}_images_png.pkl with {train,val,test}_labels.pkl beside them",
        "folders {train,val,test}/<class>/*.jpg, with classes such as n01530575",
        "class folders <class>/*.jpg, such as ImageNet's training images",
        "any of these in a zip or tar archive, such as tiered-imagenet.tar",
    )
    terms = (
        "For research only, under the terms of ImageNet (https://image-net.org/download). Cite "
        "Ren et al., Meta-Learning for Semi-Supervised Few-Shot Classification, 2018."
    )
    # The README of this page links to the archive on Google Drive.
    manual_download = ManualDownload(
        IMAGENET_TERMS,
        "tiered-imagenet.tar (12.9 GB)",
        "https://github.com/renmengye/few-shot-ssl-public",
    )

    def readers(self, work: Workspace) -> Sequence[Reader]:
        return self.read_class_folders, partial(_read_pickles, self.class_list(), work)

    def select(self, found: FoundClasses) -> FoundClasses:
        """Remove the other classes of ImageNet."""
        classes, imagenet = self.class_list(), load_class_list("md-ilsvrc")
        selected = [
            entry
            for entry in found.classes
            if entry.is_certain or classes.name(entry.name) or not imagenet.name(entry.name)
        ]
        count = len(found.classes) - len(selected)
        if not count:
            return found
        what = f"skipped {count:,} classes that are not part of tieredImageNet"
        return FoundClasses(selected, [*found.problems, Problem("ImageNet", what, fatal=False)])


def _read_pickles(classes: ClassList, work: Workspace, folder: Path) -> FoundClasses:
    pairs: dict[Split, tuple[Path, Path]] = {
        split: (images, folder / f"{split}_labels.pkl")
        for split in SPLITS
        if (images := folder / f"{split}_images_png.pkl").is_file()
    }
    missing = [labels.name for _, labels in pairs.values() if not labels.is_file()]
    if missing:
        raise DataError(
            f"{folder} has images of tieredImageNet without labels: put {', '.join(missing)} "
            "beside them."
        )
    found = FoundClasses()
    for split, (images, labels) in pairs.items():
        found += _read_pair(classes, work, split, images, labels)
    return found


def _read_pair(
    classes: ClassList, work: Workspace, split: Split, images: Path, labels: Path
) -> FoundClasses:
    table = load_plain(labels)
    try:
        numbers = np.asarray(get_entry(table, "label_specific", where=labels))
    except ValueError:
        raise DataError(f"{labels} has no list of numbers; download it again.") from None
    names = get_texts(table, "label_specific_str", where=labels)
    file, bounds = _flatten(images, work)
    if numbers.shape != (len(bounds) - 1,) or not np.isin(numbers, range(len(names))).all():
        raise DataError(
            f"{labels} does not belong to {images.name}: it has {numbers.size:,} labels of "
            f"{len(names):,} classes for {len(bounds) - 1:,} images; download both again."
        )
    # The published files name classes by words, such as "house finch", the lists by WordNet id.
    is_certain = not all(map(classes.name, names))
    found = []
    for number, name in enumerate(names):
        items = [
            Item(f"{name}/{row}", partial(_read_part, file, int(bounds[row]), int(bounds[row + 1])))
            for row in np.flatnonzero(numbers == number)
        ]
        # Two classes may have the same words.
        label = name if names.count(name) == 1 else f"{name} ({number})"
        found.append(FoundClass(label, items, split, is_certain))
    return FoundClasses(found)


def _flatten(pickle: Path, work: Workspace) -> tuple[str, np.ndarray]:
    """Write all images of a pickle to one file, and return its path and their boundaries.

    A pickle can only be loaded as a whole, and the largest one does not fit into memory.
    """
    status = pickle.stat()
    name = f"{pickle.stem}-{status.st_size}-{status.st_mtime_ns}"
    content, index = work.path / f"{name}.bin", work.path / f"{name}.npy"
    if not index.is_file():
        images = load_plain(pickle)
        if not isinstance(images, list):
            raise DataError(f"{pickle} is not a list of images; download it again.")
        work.path.mkdir(parents=True, exist_ok=True)
        lengths = [0]
        with content.open("wb") as file:
            for image in images:
                lengths.append(file.write(_png_bytes(image, pickle)))
        offsets = io.BytesIO()
        np.save(offsets, np.cumsum(lengths))
        # Written last: without this file, the images are incomplete.
        write_atomic(index, offsets.getvalue())
    return str(content), np.load(index, allow_pickle=False)


def _png_bytes(image: object, pickle: Path) -> bytes:
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return image.tobytes()
    if isinstance(image, bytes):
        return image
    raise DataError(
        f"{pickle} must be a list of PNG files, each an array of uint8, but one of them is "
        f"{getattr(image, 'dtype', type(image).__name__)}; download it again."
    )


def _read_part(path: str, begin: int, end: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(end - begin)
