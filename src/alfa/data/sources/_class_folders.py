"""Class folders on disk or in archives, in an order that is the same on every machine."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from alfa.data._archives import archive_stem, is_archive, unpack
from alfa.data._base import Split
from alfa.data._decode import read_image_file
from alfa.data.sources._base import Item, Problem, Source, Workspace
from alfa.errors import DataError

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".avif"),
)
# Files of file managers and archivers, besides names that begin with a dot.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")
_SPLIT_NAMES: Mapping[Split, Sequence[str]] = {
    "train": ("train", "base"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "novel"),
}
# Begins the note about folders inside a class folder, before their names.
INNER_FOLDERS = "folders in it are left out: "
# From the folder that the user names, through such as CUB_200_2011/images, to the classes.
_MAX_DEPTH = 3
# An archive may lie in another one, but one that contains itself has no end.
_MAX_NESTED = 2


@dataclass(frozen=True)
class FoundClass:
    """A class on disk, before it is compared with a published list.

    Its split is that of the folder around it. If that is certain, no list must name the class.
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
class FoundClasses:
    """Classes on disk, and problems with their files."""

    classes: Sequence[FoundClass] = ()
    problems: Sequence[Problem] = field(default_factory=tuple)

    def __bool__(self) -> bool:
        return bool(self.classes)

    def __add__(self, more: FoundClasses) -> FoundClasses:
        return FoundClasses((*self.classes, *more.classes), (*self.problems, *more.problems))

    @classmethod
    def of(
        cls, classes: Mapping[str, Sequence[Item]], problems: Sequence[Problem] = ()
    ) -> FoundClasses:
        """Classes by name, without splits."""
        return cls([FoundClass(name, items) for name, items in classes.items()], problems)

    def by_name(self) -> dict[str, Sequence[Item]]:
        """Every class once, with its images from all splits."""
        classes: dict[str, list[Item]] = {}
        for entry in sorted(self.classes, key=lambda entry: entry.name):
            classes.setdefault(entry.name, []).extend(entry.items)
        return {name: tuple(items) for name, items in classes.items()}


Reader = Callable[[Path], FoundClasses]
"""Reads a path in one layout; returns no classes if the layout is another."""


def split_of_folder(name: str) -> Split | None:
    """The split that a folder or file of this name contains."""
    plain = name.casefold().removeprefix("meta").lstrip("-_")
    return next((split for split, names in _SPLIT_NAMES.items() if plain in names), None)


def is_image(file_name: str) -> bool:
    """Whether a file name ends like that of an image."""
    return file_name.lower().endswith(IMAGE_SUFFIXES)


def shorten_list(names: Sequence[str], limit: int = 5) -> str:
    """The first few names, and the number of the others."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def subfolders(folder: Path) -> dict[str, Path]:
    """The folders in a folder by name, links to folders included, in order."""
    return dict(_entries(folder, _is_folder))


def list_files(folder: Path) -> dict[str, Path]:
    """Everything else in a folder by name, in order."""
    return dict(_entries(folder, lambda entry: not _is_folder(entry)))


def levels(root: Path) -> Iterator[Sequence[Path]]:
    """A folder, then the folders in it, then the folders in these."""
    level = [root]
    for _ in range(_MAX_DEPTH + 1):
        yield level
        level = [child for folder in level for child in subfolders(folder).values()]


def read_class(folder: Path, name: str, split: Split | None = None) -> FoundClasses:
    """The images of a class, which lie in one folder, and not in folders inside it."""
    items, problems, others = [], [], []
    for file_name, path in list_files(folder).items():
        label = f"{name}/{file_name}"
        if not is_image(file_name):
            others.append(file_name)
        elif not path.is_file():
            problems.append(Problem(label, "is not a file, or a link to one that is not there"))
        else:
            place = str(path)
            items.append(Item(label, partial(read_image_file, place), place))
    if others:
        what = f"what is no image is left out: {shorten_list(others)}"
        problems.append(Problem(name, what, fatal=False))
    inner = list(subfolders(folder))
    if inner:
        problems.append(Problem(name, f"{INNER_FOLDERS}{shorten_list(inner)}", fatal=False))
    return FoundClasses([FoundClass(name, items, split)], problems)


def _entries(folder: Path, wanted: Callable[[os.DirEntry[str]], bool]) -> list[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".")
            and entry.name.casefold() not in _LITTER
            and wanted(entry)
        ]
    # macOS decomposes accents, other systems do not; a class must have one name everywhere.
    normalized = {name: unicodedata.normalize("NFC", name) for name in names}
    counts = Counter(normalized.values())
    # If both spellings are there, they are two classes.
    return sorted(
        (normalized[name] if counts[normalized[name]] == 1 else name, folder / name)
        for name in names
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    # Such as a link to itself.
    except OSError:
        return False


def find_classes(source: Source, path: Path, *, work: Workspace) -> FoundClasses:
    """The class folders at a path, in the folders below it, or in an archive.

    Raises:
        DataError: there are none, or several folders of them.
    """
    root = _root_folder(path, work)
    if root.is_dir():
        for level in levels(root):
            matches = {folder: found for folder in level if (found := _class_folders_in(folder))}
            if len(matches) > 1:
                names = shorten_list([str(folder.relative_to(root)) for folder in matches])
                raise DataError(
                    f"{path} has several folders of class folders ({names}); give one of them."
                )
            if matches:
                return next(iter(matches.values()))
        archives = _archives_in(root, ("*",))
        if root is path and len(archives) == 1:
            return find_classes(source, archives[0], work=work)
    raise not_found(source, path)


def not_found(source: Source, path: Path) -> DataError:
    """The error for a path without anything of a dataset."""
    return DataError(
        f"found no {source.title} under {path}; looked for {'; or '.join(source.layouts)}."
    )


def locate(
    path: Path,
    *,
    work: Workspace,
    readers: Sequence[Reader],
    archives: Sequence[str],
    score: Callable[[FoundClasses], int],
    is_complete: Callable[[FoundClasses], bool],
    nested: int = 0,
) -> FoundClasses:
    """The classes at a path, or in the folders and archives below it.

    Args:
        path: a file, a folder or an archive.
        work: for archives that must be unpacked.
        readers: of the layouts, the likeliest first.
        archives: patterns of the paths of archives, in lower case, relative to `path`.
        score: how well classes fit; the best folder of a depth is taken.
        is_complete: whether nothing more needs to be unpacked.
        nested: the number of archives around `path`.

    Raises:
        DataError: there is nothing at the path, or an archive or file cannot be used.
    """
    root = _root_folder(path, work)
    found = _best_match(root, readers, score)
    if not root.is_dir() or nested > _MAX_NESTED:
        return found
    for archive in _archives_in(root, archives):
        if is_complete(found):
            break
        more = locate(
            archive,
            work=work,
            readers=readers,
            archives=archives,
            score=score,
            is_complete=is_complete,
            nested=nested + 1,
        )
        known = {entry.name for entry in found.classes}
        new = [entry for entry in more.classes if entry.name not in known]
        found += FoundClasses(new, more.problems if new else ())
    return found


def _root_folder(path: Path, work: Workspace) -> Path:
    """The path itself, or the folder that an archive is unpacked to, now or earlier."""
    if not path.exists():
        raise DataError(f"{path} is not there; give the folder or the archive of the dataset.")
    if not is_archive(path):
        return path
    place = str(path.resolve()).encode("utf-8", "surrogatepass")
    target = work.path / f"{archive_stem(path)}-{hashlib.sha256(place).hexdigest()[:8]}"
    return unpack(path, target, on_progress=partial(work.on_unpack, path))


def _archives_in(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The archives in a folder and its subfolders whose path matches one of the patterns."""
    return [
        path
        for parent in (folder, *subfolders(folder).values())
        for path in list_files(parent).values()
        if is_archive(path)
        and any(fnmatchcase(path.relative_to(folder).as_posix().lower(), p) for p in patterns)
    ]


def _best_match(
    root: Path, readers: Sequence[Reader], score: Callable[[FoundClasses], int]
) -> FoundClasses:
    for level in levels(root) if root.is_dir() else [[root]]:
        results = (next(filter(None, (read(path) for read in readers)), None) for path in level)
        matches = [found for found in results if found]
        if matches:
            return max(matches, key=score)
    return FoundClasses()


def _class_folders_in(folder: Path) -> FoundClasses:
    inner = subfolders(folder)
    found = FoundClasses()
    for name, sub in inner.items():
        split = split_of_folder(name)
        if split is not None:
            found += _read_all(subfolders(sub), split)
    # Beside folders for splits, other folders are no classes.
    return found or _read_all(inner, None)


def _read_all(named: Mapping[str, Path], split: Split | None) -> FoundClasses:
    found = FoundClasses()
    if any(is_image(file) for sub in named.values() for file in list_files(sub)):
        for name, sub in named.items():
            found += read_class(sub, name, split)
    return found
