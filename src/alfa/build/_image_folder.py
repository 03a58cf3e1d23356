"""A user's folder of images: scan it, and compose an experiment on its classes."""

import copy
import hashlib
import os
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from alfa.backbones import open_backbone
from alfa.config import Choices, Experiment, compose_for_folder
from alfa.data import (
    SPLITS,
    Index,
    Split,
    archive_stem,
    is_archive,
    open_image,
    suppress_pillow_warnings,
)
from alfa.data.sources import (
    INNER_FOLDERS,
    Folder,
    FoundClasses,
    Item,
    Listing,
    Source,
    Workspace,
    find_classes,
    shorten_list,
)
from alfa.errors import ConfigError, DataError

DEFAULT_BACKBONE = "efficientnet-lite0"
"""The pretrained backbone for a folder of photos."""

Counts = Mapping[Split, Sequence[int]]
"""The number of images in each class of each split."""

# The two image sizes; the first is for images smaller than their geometric mean.
_SMALL, _LARGE = 32, 84
_MIDDLE = (_SMALL * _LARGE) ** 0.5
# Number of images to open, evenly spaced, to determine the size and the channels.
_NUM_SAMPLES = 500
# Grayscale modes of Pillow, and the largest difference between the channels of a gray image.
_GRAY_MODES, _GRAY_NOISE = ("1", "L", "LA", "La", "I", "F"), 4

# Classes with fewer images than a minimum are skipped. The minimum is the first of these numbers
# that nearly all classes reach.
# A class needs 2 images, one for support and one for query.
_MIN_IMAGES, _NEARLY_ALL = (10, 4, 2), 0.9
_MIN_CLASSES = 2
_MAX_WAY, _MAX_SHOT, _MAX_QUERY = 5, 5, 15

# With fewer than `_FEW` training classes, meta-training hardly pays off. With at least `_MANY`, as
# in miniImageNet and CIFAR-FS, it pays off if the classes have at least `_MANY_IMAGES` images.
_FEW, _MANY, _MANY_IMAGES = 20, 64, 20


@dataclass(frozen=True)
class ImageFolder:
    """A scanned folder of images, and notes on its classes, one sentence each.

    `dataset` is the name of the prepared images. It changes with the files, so that each run keeps
    the images on which it was trained.
    """

    title: str
    dataset: str
    source: Source
    counts: Counts
    notes: Sequence[str] = ()

    def for_backbone(self, name: str) -> "ImageFolder":
        """Return the same folder, with images as a pretrained backbone takes them.

        These are center squares of the size and with the filter of its preprocessing, so that
        their features equal those of the photos.
        """
        prepared = open_backbone(name).preprocessing
        source = copy.copy(self.source)
        source.size, source.crop_filter = prepared.resize, prepared.resample
        return replace(self, dataset=f"{self.dataset}-{prepared.resample}", source=source)


class _ListedFolder(Folder):
    """A folder whose images have already been listed, possibly in an unpacked archive."""

    def __init__(self, listing: Listing, *, size: int, num_channels: Literal[1, 3]) -> None:
        super().__init__(size=size, num_channels=num_channels)
        self._listing = listing

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return self._listing


def scan_image_folder(path: Path, *, work: Workspace) -> ImageFolder:
    """List the images of a folder or archive of class folders, and split the classes.

    Raises:
        DataError: there are no class folders, or too few classes or images for any task.
    """
    found = find_classes(Folder(), path, work=work)
    by_folders = _has_splits(found)
    min_images = _min_images(found, path, by_folders=by_folders)
    if by_folders:
        source = Folder(split="folders", min_images=min_images)
    else:
        num_classes = sum(len(items) >= min_images for items in found.by_name().values())
        ratio = [count / num_classes for count in split_sizes(num_classes)]
        source = Folder(split="ratio", ratio=ratio, min_images=min_images)
    listing = source.find(path, work=work)
    counts = {
        split: [len(items) for items in listing.classes.get(split, {}).values()] for split in SPLITS
    }
    _check_counts(counts, path)
    items = [item for split in listing.classes.values() for c in split.values() for item in c]
    size, num_channels = infer_size_and_channels(items)
    title = title_of(path)
    return ImageFolder(
        title,
        f"{title}-{_digest(listing, num_channels, work)}",
        _ListedFolder(listing, size=size, num_channels=num_channels),
        counts,
        _notes(found, min_images, by_folders=by_folders),
    )


def _has_splits(found: FoundClasses) -> bool:
    """Return True if folders such as train, val, and test contain different classes.

    In a folder for ordinary classification, they contain the same classes.
    """
    under = {split: {c.name for c in found.classes if c.split == split} for split in SPLITS}
    held_out = under["val"] | under["test"]
    # A few classes may be in two splits by mistake; preparing the images reports them.
    return 2 * len(held_out & under["train"]) < len(held_out)


def _min_images(found: FoundClasses, path: Path, *, by_folders: bool) -> int:
    """Return the minimum number of images per class; nearly all classes reach it."""
    sizes: dict[Split | None, list[int]] = defaultdict(list)
    if by_folders:
        for entry in found.classes:
            sizes[entry.split].append(len(entry.items))
    else:
        sizes[None] = [len(items) for items in found.by_name().values()]
    needed = _MIN_CLASSES if by_folders else _MIN_CLASSES * len(SPLITS)
    total = sum(map(len, sizes.values()))
    smallest = _MIN_IMAGES[-1]
    for minimum in _MIN_IMAGES:
        kept = [sum(size >= minimum for size in group) for group in sizes.values()]
        nearly_all = sum(kept) >= _NEARLY_ALL * total or minimum == smallest
        if min(kept) >= needed and nearly_all:
            return minimum
    if by_folders:
        return smallest  # `_check_counts` names the split.
    raise DataError(
        f"{path} has {_classes(kept[0])} with at least {smallest} images, but needs {needed}: "
        f"{_MIN_CLASSES} each for training, validation, and test. Add class folders, or adapt a "
        "run that was trained on other data to these classes with `alfa.FewShotClassifier`."
    )


def choose_backbone(folder: ImageFolder, choices: Choices, overrides: Sequence[str]) -> Choices:
    """Return the choices with a pretrained backbone, unless the user chose a model.

    Only color images are photos, and the weights of the backbone must be installed.
    """
    keys = [override.partition("=")[0].strip() for override in overrides]
    has_model = any(key.startswith(("model.", "tasks.backbone")) for key in keys)
    if choices.backbone is not None or has_model or folder.source.num_channels == 1:
        return choices
    try:
        open_backbone(DEFAULT_BACKBONE)
    except ConfigError:
        return choices
    return replace(choices, backbone=DEFAULT_BACKBONE)


def split_sizes(num_classes: int) -> tuple[int, int, int]:
    """Return the number of training, validation, and test classes.

    Many classes are split into 64, 16, and 20 %, as in the published datasets. Few classes are
    split so that validation and test can form tasks: each gets a fifth of the classes, but at least
    2, and at most as many as a task has.
    """
    held_out = max(_MIN_CLASSES, min(_MAX_WAY, num_classes // 5))
    val, test = (max(held_out, round(share * num_classes)) for share in (0.16, 0.2))
    return num_classes - val - test, val, test


def _check_counts(counts: Counts, path: Path) -> None:
    """Raise a DataError unless every split has enough classes and images for a task."""
    smallest = _MIN_IMAGES[-1]
    for split in SPLITS:
        enough = sum(count >= smallest for count in counts.get(split, ()))
        if enough < _MIN_CLASSES:
            raise DataError(
                f"{path} has {_classes(enough)} with at least {smallest} images for {split}, but "
                f"each of {', '.join(SPLITS)} needs {_MIN_CLASSES}. Add classes, or put all class "
                "folders side by side to split them at random."
            )


def infer_size_and_channels(items: Sequence[Item]) -> tuple[int, Literal[1, 3]]:
    """Return the size for a sample of the images, and 1 channel if all of them are gray, else 3."""
    sides = []
    gray = True
    sample = np.linspace(0, len(items) - 1, min(len(items), _NUM_SAMPLES)).astype(int)
    with suppress_pillow_warnings():
        for number in sample:
            try:
                content = items[number].read()
                assert isinstance(content, bytes)
                image = open_image(content)
                sides.append((image.width * image.height) ** 0.5)
                gray = gray and _is_gray(image)
            # Pillow raises errors of any type; preparing the images reports them.
            except Exception:
                continue
    small = bool(sides) and statistics.median(sides) < _MIDDLE
    return _SMALL if small else _LARGE, 1 if sides and gray else 3


def _is_gray(image: Image.Image) -> bool:
    if image.mode in _GRAY_MODES or image.mode.startswith("I;16"):
        return True
    # A reduced photo is enough to see its colors.
    image.draft("RGB", (_LARGE, _LARGE))
    channels = np.asarray(image.convert("RGB"), dtype=np.int16)
    return int(np.ptp(channels, axis=2).max()) <= _GRAY_NOISE


def title_of(path: Path) -> str:
    """Turn the name of a folder or archive into a valid name for a dataset or run folder."""
    name = archive_stem(path) if is_archive(path) else path.resolve().name
    return re.sub(r"[^\w.+-]+", "-", name)[:40].strip("-.+") or "images"


def _digest(listing: Listing, num_channels: int, work: Workspace) -> str:
    """Hash the splits and the files; the digest changes if any of them changes."""
    found = hashlib.sha256(str(num_channels).encode())
    for split, classes in listing.classes.items():
        for name, items in classes.items():
            for item in items:
                words = (split, name, item.name, _file_state(item, work))
                found.update("\0".join(words).encode("utf-8", "surrogatepass"))
    return found.hexdigest()[:8]


def _file_state(item: Item, work: Workspace) -> str:
    assert item.path is not None
    if Path(item.path).is_relative_to(work.path):
        # The modification time of an unpacked file is irrelevant.
        return hashlib.sha256(Path(item.path).read_bytes()).hexdigest()
    status = os.stat(item.path)
    return f"{status.st_size} {status.st_mtime_ns}"


def _notes(found: FoundClasses, min_images: int, *, by_folders: bool) -> list[str]:
    notes = []
    splits = {entry.split for entry in found.classes} - {None}
    if splits and not by_folders:
        notes.append(
            f"the folders ({', '.join(sorted(map(str, splits)))}) do not separate training "
            "classes from unseen test classes; alfa merges the images of each class and "
            "splits the classes at random"
        )
    small = [name for name, items in found.by_name().items() if 0 < len(items) < min_images]
    if small:
        notes.append(
            f"skipped {_classes(len(small))} with fewer than {min_images} images: "
            f"{shorten_list(small)}"
        )
    inner = [
        f"{problem.where} ({problem.what.removeprefix(INNER_FOLDERS)})"
        for problem in found.problems
        if problem.what.startswith(INNER_FOLDERS)
    ]
    if inner:
        notes.append(
            f"skipped folders inside {_classes(len(inner))}, because a class contains only the "
            f"images directly in its folder: {shorten_list(inner)}"
        )
    return notes


def usable_counts(index: Index, path: Path) -> Counts:
    """Return the class sizes of a prepared dataset; raise a DataError if they are too small."""
    small = [f"{c.split}/{c.name}" for c in index.classes if c.count < _MIN_IMAGES[-1]]
    if small:
        raise DataError(
            f"{path} has {_classes(len(small))} with fewer than {_MIN_IMAGES[-1]} usable images: "
            f"{shorten_list(small)}. Repair the images, or remove these folders."
        )
    counts: Counts = {
        split: [c.count for c in index.classes if c.split == split] for split in SPLITS
    }
    _check_counts(counts, path)
    return counts


def experiment_for(
    dataset: str,
    counts: Counts,
    *,
    size: int,
    choices: Choices = Choices(),  # noqa: B008 - frozen
    overrides: Iterable[str] = (),
) -> Experiment:
    """Compose an experiment that a laptop can train, with a model that classifies each image alone.

    The task sizes follow from the class sizes, `counts`, unless the user chooses them.
    """
    way, shot, num_query = task_sizes(counts)
    tasks = {"dataset": dataset, "size": size, "way": way, "shot": shot, "num_query": num_query}
    experiment = compose_for_folder(tasks, choices=choices, overrides=overrides)
    named = experiment.tasks.options.get("dataset", dataset)
    if named not in (dataset, [dataset]):
        raise ConfigError(
            f"tasks.dataset is {named!r}, but the images come from a folder; omit tasks.dataset, "
            "or train on a dataset by name."
        )
    return experiment


def task_sizes(counts: Counts) -> tuple[int, int, int]:
    """Return the way, shot, and number of queries of tasks that fit every split."""
    smallest = min(min(of_split) for of_split in counts.values())
    way = min(_MAX_WAY, *(len(of_split) for of_split in counts.values()))
    shot = min(_MAX_SHOT, smallest // 2)
    return way, shot, min(_MAX_QUERY, smallest - shot)


def describe_counts(counts: Counts) -> str:
    """Describe the classes and images in one line."""
    sizes = [count for of_split in counts.values() for count in of_split]
    low, high = min(sizes), max(sizes)
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    train, val, test = (len(counts[split]) for split in SPLITS)
    return (
        f"{_classes(len(sizes))} of {each} images ({sum(sizes):,} images): {train} for training, "
        f"{val} for validation, and {test} for test"
    )


def training_advice(counts: Counts, *, is_pretrained: bool = False) -> str:
    """Say in one sentence if meta-training on these class counts pays off.

    With a pretrained backbone, a model is good without training.
    """
    num_classes, images = len(counts["train"]), statistics.median(counts["train"])
    if is_pretrained:
        if num_classes < _FEW:
            return (
                f"the features of the pretrained backbone are good immediately; {num_classes} "
                f"training classes are few, and meta-training gains more with {_FEW} or more "
                "related classes"
            )
        return (
            "the features of the pretrained backbone are good immediately, and meta-training on "
            f"{num_classes} related classes for a few minutes usually gains more"
        )
    if num_classes < _FEW:
        return (
            f"meta-training on {num_classes} classes hardly pays off, because it needs {_FEW} or "
            "more; instead, adapt a run that was trained on other data to these classes with "
            "`alfa.FewShotClassifier`: train such a run with `alfa train strokes-demo` for "
            "drawings or `alfa train cifar-fs` for photos"
        )
    if num_classes >= _MANY and images >= _MANY_IMAGES:
        return "miniImageNet and CIFAR-FS have no more classes, so meta-training pays off"
    return (
        f"meta-training may pay off; it does with {_MANY} classes of {_MANY_IMAGES} images; "
        "additional classes help more than additional images per class"
    )


def _classes(number: int) -> str:
    return f"{number:,} class" if number == 1 else f"{number:,} classes"
