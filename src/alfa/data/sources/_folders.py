"""Folders of images: what counts as one, in an order that is the same on every machine."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from alfa.data._base import Split
from alfa.data._decode import read_image
from alfa.data.sources._base import Item, Problem

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".avif"),
)
# What file managers and archivers leave behind, besides names that begin with a dot.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")
_SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "base": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "novel": "test",
}
# What is told of a class whose folder has folders, before their names.
INNER = "folders in it are left out: "
# From the folder that the user names, through such as CUB_200_2011/images, to the classes.
_MAX_DEPTH = 3


@dataclass(frozen=True)
class ClassFound:
    """A class as it lies on disk, before it is held against a published split.

    Attributes:
        name: of the class.
        items: its images.
        split: that it lies under; None where only its name can tell.
        is_certain: the split is right although no published list has a class of this name.
    """

    name: str
    items: Sequence[Item]
    split: Split | None = None
    is_certain: bool = False

    @property
    def where(self) -> str:
        """What a report calls it."""
        return self.name if self.split is None else f"{self.split}/{self.name}"


@dataclass(frozen=True)
class Found:
    """Classes as they lie on disk, and what was wrong with their files."""

    classes: Sequence[ClassFound] = ()
    problems: Sequence[Problem] = field(default_factory=tuple)

    def __bool__(self) -> bool:
        return bool(self.classes)

    def __add__(self, more: Found) -> Found:
        return Found((*self.classes, *more.classes), (*self.problems, *more.problems))


Reader = Callable[[Path], Found]
"""Reads a path in one layout; finds nothing where the layout is another."""


def split_named(name: str) -> Split | None:
    """The split that a folder or file of this name holds."""
    plain = name.casefold().removeprefix("meta").lstrip("-_")
    return _SPLIT_NAMES.get(plain)


def subfolders(folder: Path) -> dict[str, Path]:
    """The folders in a folder by name, links to folders included, in order."""
    return dict(_entries(folder, _is_folder))


def files(folder: Path) -> dict[str, Path]:
    """Everything else in a folder by name, in order."""
    return dict(_entries(folder, lambda entry: not _is_folder(entry)))


def levels(root: Path) -> Iterator[Sequence[Path]]:
    """A folder, then the folders in it, then those in them."""
    level = [root]
    for _ in range(_MAX_DEPTH + 1):
        yield level
        level = [child for folder in level for child in subfolders(folder).values()]


def read_class(folder: Path, name: str, split: Split | None = None) -> Found:
    """The images of a class, which lie in one folder, and not in folders inside it."""
    items, problems, others = [], [], []
    for file_name, path in files(folder).items():
        label = f"{name}/{file_name}"
        if not is_image(file_name):
            others.append(file_name)
        elif not path.is_file():
            problems.append(Problem(label, "is not a file, or a link to one that is not there"))
        else:
            place = str(path)
            items.append(Item(label, partial(_read_file, place), place))
    if others:
        what = f"what is no image is left out: {shortened(others)}"
        problems.append(Problem(name, what, fatal=False))
    inner = list(subfolders(folder))
    if inner:
        problems.append(Problem(name, f"{INNER}{shortened(inner)}", fatal=False))
    return Found([ClassFound(name, items, split)], problems)


def is_image(file_name: str) -> bool:
    """Whether a file is called an image."""
    return file_name.lower().endswith(IMAGE_SUFFIXES)


def shortened(names: Sequence[str], limit: int = 5) -> str:
    """The first few of many names, and how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def _entries(folder: Path, wanted: Callable[[os.DirEntry[str]], bool]) -> list[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".")
            and entry.name.casefold() not in _LITTER
            and wanted(entry)
        ]
    # macOS takes accents apart, others do not; a class must have one name everywhere.
    called = {name: unicodedata.normalize("NFC", name) for name in names}
    counts = Counter(called.values())
    # Where both are there, they are two.
    return sorted(
        (called[name] if counts[called[name]] == 1 else name, folder / name) for name in names
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    # Such as a link to itself.
    except OSError:
        return False


def _read_file(path: str) -> bytes:
    return read_image(Path(path))
