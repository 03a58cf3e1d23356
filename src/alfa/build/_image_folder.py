"""A folder of one's own images: what is in it, whether it is worth it, and what to train on it."""

from __future__ import annotations

import hashlib
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

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

Counts = Mapping[Split, Sequence[int]]
"""How many images the classes of each split have."""

# Sides that models are trained on; what lies nearer to the first, as a ratio, is small.
_SMALL, _LARGE = 32, 84
_MIDDLE = (_SMALL * _LARGE) ** 0.5
# Images that are opened to learn their size and whether they are grey, spread over all of them.
_LOOKED_AT = 500
# Modes of Pillow that have no colours, and by how much channels of a grey image may differ.
_GREY_MODES, _GREY_NOISE = ("1", "L", "LA", "La", "I", "F"), 4

# Classes that are too small are left out where the others are nearly all; the first number that
# allows that is taken. A class of one image cannot be both learned and tested.
_MIN_IMAGES, _NEARLY_ALL = (10, 4, 2), 0.9
_MIN_CLASSES = 2
_MAX_WAY, _MAX_SHOT, _MAX_QUERY = 5, 5, 15

# Training classes below which the effort is hardly worth it, and, with so many images each, from
# which there are as many as in miniImageNet and CIFAR-FS.
_FEW, _MANY, _MANY_IMAGES = 20, 64, 20

_NO_CHOICES = Choices()


@dataclass(frozen=True)
class OwnData:
    """What a folder of images has.

    Attributes:
        title: what the folder is called.
        dataset: what it is prepared as; another name after any change of its files, so that runs
            keep the images that they were trained on.
        source: finds its images as they were found here.
        counts: how many images its classes have.
        notes: what was decided about its classes, a sentence each.
    """

    title: str
    dataset: str
    source: Source
    counts: Counts
    notes: Sequence[str] = ()


class _Seen(Source):
    """A folder whose images have been found already, maybe in an archive that was unpacked."""

    title, layouts, terms = Folder.title, Folder.layouts, Folder.terms

    def __init__(self, listing: Listing, *, size: int, num_channels: Literal[1, 3]) -> None:
        like = Folder(size=size, num_channels=num_channels)
        self.size, self.num_channels = like.size, like.num_channels
        self.mean, self.std = like.mean, like.std
        self._listing = listing

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return self._listing


def survey(path: Path, *, work: Workspace) -> OwnData:
    """Look into a folder of class folders, or an archive of them, which alone writes anything.

    Args:
        path: the folder or the archive, in one of the layouts of the dataset `folder`.
        work: where an archive is unpacked; needed until the images are prepared.

    Raises:
        DataError: there are no class folders, or too few classes or images for any task.
    """
    found = find_classes(Folder(), path, work=work)
    by_folders = _is_split(found)
    min_images = _min_images(found, path, by_folders=by_folders)
    if by_folders:
        source = Folder(split="folders", min_images=min_images)
    else:
        classes = [c for c in found.by_name().values() if len(c) >= min_images]
        ratio = [count / len(classes) for count in shared_out(len(classes))]
        source = Folder(split="ratio", ratio=ratio, min_images=min_images)
    listing = source.find(path, work=work)
    counts = {
        split: [len(items) for items in listing.classes.get(split, {}).values()] for split in SPLITS
    }
    check(counts, path)
    items = [item for split in listing.classes.values() for c in split.values() for item in c]
    size, num_channels = look(items)
    title = title_of(path)
    return OwnData(
        title,
        f"{title}-{_digest(listing, num_channels, work)}",
        _Seen(listing, size=size, num_channels=num_channels),
        counts,
        _notes(found, min_images, by_folders=by_folders),
    )


def _is_split(found: FoundClasses) -> bool:
    """Whether folders such as train, val and test tell which classes are for what.

    Folders for ordinary classification have the same classes in each, and tell nothing.
    """
    under = {split: {c.name for c in found.classes if c.split == split} for split in SPLITS}
    held = under["val"] | under["test"]
    # A few that lie in two by mistake are told of when the images are prepared.
    return 2 * len(held & under["train"]) < len(held)


def _min_images(found: FoundClasses, path: Path, *, by_folders: bool) -> int:
    """How many images a class must have, which most of them do."""
    sizes: dict[Split | None, list[int]] = {}
    if by_folders:
        for entry in found.classes:
            sizes.setdefault(entry.split, []).append(len(entry.items))
    else:
        sizes = {None: [len(items) for items in found.by_name().values()]}
    needed = _MIN_CLASSES if by_folders else _MIN_CLASSES * len(SPLITS)
    total = sum(map(len, sizes.values()))
    for least in _MIN_IMAGES:
        kept = [sum(size >= least for size in some) for some in sizes.values()]
        nearly_all = sum(kept) >= _NEARLY_ALL * total or least == _MIN_IMAGES[-1]
        if min(kept) >= needed and nearly_all:
            return least
    if by_folders:
        return _MIN_IMAGES[-1]  # `check` says which split has too little
    raise DataError(
        f"{path} has {_classes(kept[0])} of at least {_MIN_IMAGES[-1]} images, but {needed} are "
        f"needed, {_MIN_CLASSES} each to train, validate and test with; add class folders, or "
        "adapt a run that was trained on other data to these classes by `alfa.FewShotClassifier`."
    )


def shared_out(num_classes: int) -> tuple[int, int, int]:
    """How many of the classes are for training, validation and test.

    As in the published datasets, 64, 16 and 20 % of many; of few, enough are held back that tasks
    can be made of them: a fifth each, as far as that is not more than the classes of a task.
    """
    held = max(_MIN_CLASSES, min(_MAX_WAY, num_classes // 5))
    val, test = (max(held, round(share * num_classes)) for share in (0.16, 0.2))
    return num_classes - val - test, val, test


def check(counts: Counts, path: Path) -> None:
    """Make sure that there are enough classes and images for some task in every split.

    Raises:
        DataError: there are not.
    """
    for split in SPLITS:
        enough = [count for count in counts.get(split, ()) if count >= _MIN_IMAGES[-1]]
        if len(enough) < _MIN_CLASSES:
            raise DataError(
                f"{path} has {_classes(len(enough))} of at least {_MIN_IMAGES[-1]} images for "
                f"{split}, but each of {', '.join(SPLITS)} needs {_MIN_CLASSES}; add some, or put "
                "all class folders side by side, so that chance shares them out."
            )


def look(items: Sequence[Item]) -> tuple[int, Literal[1, 3]]:
    """The side that images are best brought to, and their channels, 1 if all of them are grey.

    Args:
        items: the images; of many, some are looked at, and what cannot be read is passed over.
    """
    sides = []
    grey = True
    some = np.linspace(0, len(items) - 1, min(len(items), _LOOKED_AT)).astype(int)
    with suppress_pillow_warnings():
        for number in some:
            try:
                content = items[number].read()
                assert isinstance(content, bytes)
                image = open_image(content)
                sides.append((image.width * image.height) ** 0.5)
                grey = grey and _is_grey(image)
            # Preparing the images tells what is wrong with them, whatever Pillow raises.
            except Exception:
                continue
    small = bool(sides) and statistics.median(sides) < _MIDDLE
    return _SMALL if small else _LARGE, 1 if sides and grey else 3


def _is_grey(image: Image.Image) -> bool:
    if image.mode in _GREY_MODES or image.mode.startswith("I;16"):
        return True
    # A photo need not be decoded in full to see its colours.
    image.draft("RGB", (_LARGE, _LARGE))
    channels = np.asarray(image.convert("RGB"), dtype=np.int16)
    return int(np.ptp(channels, axis=2).max()) <= _GREY_NOISE


def title_of(path: Path) -> str:
    """What a folder or an archive is called, as a dataset or a run folder may be."""
    name = archive_stem(path) if is_archive(path) else path.resolve().name
    return re.sub(r"[^\w.+-]+", "-", name)[:40].strip("-.+") or "images"


def _digest(listing: Listing, num_channels: int, work: Workspace) -> str:
    """The same for the same files, unchanged, with the same splits."""
    found = hashlib.sha256(str(num_channels).encode())
    for split, classes in listing.classes.items():
        for name, items in classes.items():
            for item in items:
                words = (split, name, item.name, _state(item, work))
                found.update("\0".join(words).encode("utf-8", "surrogatepass"))
    return found.hexdigest()[:8]


def _state(item: Item, work: Workspace) -> str:
    """What changes when a file does."""
    assert item.path is not None
    if Path(item.path).is_relative_to(work.path):
        # Unpacked just now, so that its time says nothing.
        return hashlib.sha256(Path(item.path).read_bytes()).hexdigest()
    status = os.stat(item.path)
    return f"{status.st_size} {status.st_mtime_ns}"


def _notes(found: FoundClasses, min_images: int, *, by_folders: bool) -> list[str]:
    notes = []
    splits = {entry.split for entry in found.classes} - {None}
    if not by_folders and len(splits) > 1:
        notes.append(
            "its folders for training and test hold the same classes, but unseen ones are needed "
            "to test with, so all images of a class are put together, and chance shares out the "
            "classes"
        )
    elif not by_folders and splits:
        notes.append(
            f"all of its classes lie in a folder for {splits.pop()}, but unseen ones are needed to "
            "test with, so chance shares them out"
        )
    small = [name for name, items in found.by_name().items() if 0 < len(items) < min_images]
    if small:
        notes.append(
            f"left out, {_classes(len(small))} of fewer than {min_images} images: "
            f"{shorten_list(small)}"
        )
    inner = [
        f"{problem.where} ({problem.what.removeprefix(INNER_FOLDERS)})"
        for problem in found.problems
        if problem.what.startswith(INNER_FOLDERS)
    ]
    if inner:
        notes.append(
            f"left out, folders inside {_classes(len(inner))}, of which only images right in the "
            f"class's own folder are taken: {shorten_list(inner)}"
        )
    return notes


def counts_of(index: Index, path: Path) -> Counts:
    """How many images the classes of a prepared dataset have, if tasks can be made of all.

    Args:
        index: of the dataset; images that could not be read may have been left out.
        path: where the images come from.

    Raises:
        DataError: a class has too few of them, or a split too few classes.
    """
    small = [f"{c.split}/{c.name}" for c in index.classes if c.count < _MIN_IMAGES[-1]]
    if small:
        raise DataError(
            f"{path} has {_classes(len(small))} of which fewer than {_MIN_IMAGES[-1]} images can "
            f"be used: {shorten_list(small)}; put their images right, or take these folders away."
        )
    counts: Counts = {
        split: [c.count for c in index.classes if c.split == split] for split in SPLITS
    }
    check(counts, path)
    return counts


def experiment_for(
    dataset: str,
    counts: Counts,
    *,
    size: int,
    choices: Choices = _NO_CHOICES,
    overrides: Iterable[str] = (),
) -> Experiment:
    """Compose an experiment that a laptop can train, whose model classifies single images.

    Args:
        dataset: the name of the prepared images.
        counts: how many images its classes have.
        size: the side of the images.
        choices: the method, the backbone, and the sizes of the tasks, if the user chose them.
        overrides: such as ``"outer.num_iterations=100"``.

    Raises:
        ConfigError: a choice or an override is invalid.
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
    """Way, shot and queries of tasks that every split can give."""
    smallest = min(min(of_split) for of_split in counts.values())
    way = min(_MAX_WAY, *(len(of_split) for of_split in counts.values()))
    shot = min(_MAX_SHOT, smallest // 2)
    return way, shot, min(_MAX_QUERY, smallest - shot)


def contents(counts: Counts) -> str:
    """What there is, in one line."""
    sizes = [count for of_split in counts.values() for count in of_split]
    low, high = min(sizes), max(sizes)
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    train, val, test = (len(counts[split]) for split in SPLITS)
    return (
        f"{_classes(len(sizes))} of {each} images, {sum(sizes):,} in all: {train} to train on, "
        f"{val} to validate and {test} to test with"
    )


def worth(counts: Counts) -> str:
    """Whether it is worth it to meta-train on so many classes, in one sentence."""
    num_classes, images = len(counts["train"]), statistics.median(counts["train"])
    if num_classes < _FEW:
        return (
            f"with {num_classes} classes to train on, fewer than {_FEW}, this is hardly worth it: "
            "how to learn a new class is learned from many; rather take a run that was trained on "
            "other data, such as `alfa train strokes-demo` for drawings or `alfa train "
            "cifar-fs` for photos, and just adapt it to these classes by "
            "`alfa.FewShotClassifier`"
        )
    if num_classes >= _MANY and images >= _MANY_IMAGES:
        return "this is as many classes as miniImageNet and CIFAR-FS have, and well worth it"
    return (
        f"this is worth a try; from {_MANY} classes of {_MANY_IMAGES} images on it is well worth "
        "it; more classes help more than more images of each"
    )


def _classes(number: int) -> str:
    return f"{number:,} class" if number == 1 else f"{number:,} classes"
