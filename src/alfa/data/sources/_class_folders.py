"""Class folders on disk or in archives, listed in the same order on every machine."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from alfa.data._archives import archive_stem, is_archive, unpack
from alfa.data._base import Split
from alfa.data.sources._base import Item, Problem, Source, Workspace
from alfa.errors import DataError

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".avif", ".heic", ".heif", ".hif"),
)
# Files that file managers and archivers create, in addition to hidden files.
_SYSTEM_FILES = ("thumbs.db", "desktop.ini", "__macosx")
_SPLIT_NAMES: Mapping[Split, Sequence[str]] = {
    "train": ("train", "base"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "novel"),
}
# The start of the note about folders inside a class folder; their names follow.
INNER_FOLDERS = "skipped folders inside the class folder: "
# Levels between the user's folder and the class folders, as in CUB_200_2011/images.
_MAX_DEPTH = 3


@dataclass(frozen=True)
class FoundClass:
    """A class on disk; a folder around it gives its split, if any.

    No published list needs to contain the class if `is_certain`.
    """

    name: str
    items: Sequence[Item]
    split: Split | None = None
    is_certain: bool = False


@dataclass(frozen=True)
class FoundClasses:
    """Classes on disk, and problems with their files."""

    classes: Sequence[FoundClass] = ()
    problems: Sequence[Problem] = ()

    def __bool__(self) -> bool:
        return bool(self.classes)

    def __add__(self, more: FoundClasses) -> FoundClasses:
        return FoundClasses((*self.classes, *more.classes), (*self.problems, *more.problems))

    @classmethod
    def of(
        cls, classes: Mapping[str, Sequence[Item]], problems: Sequence[Problem] = ()
    ) -> FoundClasses:
        """Create classes without splits."""
        return cls([FoundClass(name, items) for name, items in classes.items()], problems)

    def by_name(self) -> Mapping[str, Sequence[Item]]:
        """Return every class once, with its images from all splits."""
        classes: dict[str, list[Item]] = defaultdict(list)
        for entry in sorted(self.classes, key=lambda entry: entry.name):
            classes[entry.name] += entry.items
        return dict(classes)


Reader = Callable[[Path], FoundClasses]
"""Lists the classes at a path in one layout; returns none if the path has another layout."""


def split_of_folder(name: str) -> Split | None:
    """Return the split that a folder or file of this name contains."""
    plain = name.casefold().removeprefix("meta").lstrip("-_")
    return next((split for split, names in _SPLIT_NAMES.items() if plain in names), None)


def is_image(file_name: str) -> bool:
    """Return True if a file name has the suffix of an image."""
    return file_name.lower().endswith(IMAGE_SUFFIXES)


def shorten_list(names: Sequence[str], limit: int = 5) -> str:
    """Join the first few names, and count the others."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def subfolders(folder: Path) -> dict[str, Path]:
    """Return the folders in a folder by name, including links to folders, in order."""
    return _entries(folder, _is_folder)


def list_files(folder: Path) -> dict[str, Path]:
    """Return the entries of a folder that are not folders by name, in order."""
    return _entries(folder, lambda entry: not _is_folder(entry))


def levels(root: Path) -> Iterator[Sequence[Path]]:
    """Yield a folder, then its subfolders, then their subfolders."""
    level = [root]
    for _ in range(_MAX_DEPTH + 1):
        yield level
        level = [child for folder in level for child in subfolders(folder).values()]


def read_class(folder: Path, name: str, split: Split | None = None) -> FoundClasses:
    """List the images of a class directly in its folder."""
    items, problems, others = [], [], []
    for file_name, path in list_files(folder).items():
        label = f"{name}/{file_name}"
        if not is_image(file_name):
            others.append(file_name)
        elif not path.is_file():
            problems.append(Problem(label, "is neither a file nor a link to an existing file"))
        else:
            items.append(Item.of_file(label, path))
    if others:
        what = f"skipped files that are not images: {shorten_list(others)}"
        problems.append(Problem(name, what, fatal=False))
    if inner := list(subfolders(folder)):
        problems.append(Problem(name, f"{INNER_FOLDERS}{shorten_list(inner)}", fatal=False))
    return FoundClasses([FoundClass(name, items, split)], problems)


def _entries(folder: Path, wanted: Callable[[os.DirEntry[str]], bool]) -> dict[str, Path]:
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".")
            and entry.name.casefold() not in _SYSTEM_FILES
            and wanted(entry)
        ]
    # Only macOS decomposes accents, but a class must have the same name on every system.
    normalized = {name: unicodedata.normalize("NFC", name) for name in names}
    counts = Counter(normalized.values())
    # A folder with both spellings has two classes.
    return dict(
        sorted(
            (normalized[name] if counts[normalized[name]] == 1 else name, folder / name)
            for name in names
        )
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    # For example, a link to itself.
    except OSError:
        return False


def find_classes(source: Source, path: Path, *, work: Workspace) -> FoundClasses:
    """List the class folders in one folder under a path; raise a DataError unless it is unique."""
    root = root_folder(path, work)
    if root.is_dir():
        for level in levels(root):
            matches = {folder: found for folder in level if (found := _class_folders_in(folder))}
            if len(matches) > 1:
                names = shorten_list([str(folder.relative_to(root)) for folder in matches])
                raise DataError(
                    f"{path} has several folders with class folders ({names}); give one of them."
                )
            if matches:
                return next(iter(matches.values()))
        archives = archives_in(root, ("*",))
        if root is path and len(archives) == 1:
            return find_classes(source, archives[0], work=work)
    raise not_found(source, path)


def not_found(source: Source, path: Path) -> DataError:
    """Return the error for a path that contains nothing of a dataset."""
    return DataError(
        f"found no {source.title} under {path}; looked for {'; or '.join(source.layouts)}."
    )


def root_folder(path: Path, work: Workspace) -> Path:
    """Return the path, or the folder of an unpacked archive; unpack the archive if necessary."""
    if not path.exists():
        raise DataError(f"{path} does not exist; give the folder or the archive of the dataset.")
    if not is_archive(path):
        return path
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()
    target = work.path / f"{archive_stem(path)}-{digest[:8]}"
    return unpack(path, target, on_progress=partial(work.on_unpack, path))


def archives_in(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the archives in a folder and its subfolders whose path matches a pattern."""
    return [
        path
        for parent in (folder, *subfolders(folder).values())
        for path in list_files(parent).values()
        if is_archive(path)
        and any(fnmatchcase(path.relative_to(folder).as_posix().lower(), p) for p in patterns)
    ]


def _class_folders_in(folder: Path, split: Split | None = None) -> FoundClasses:
    inner = subfolders(folder)
    found = FoundClasses()
    for name, sub in inner.items():
        if split is None and (known := split_of_folder(name)):
            found += _class_folders_in(sub, known)
    # Folders beside split folders are not classes.
    if not found and any(is_image(file) for sub in inner.values() for file in list_files(sub)):
        for name, sub in inner.items():
            found += read_class(sub, name, split)
    return found
