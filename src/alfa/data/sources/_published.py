"""Datasets with published splits: compare the classes on disk with the published lists."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from alfa.data._base import SPLITS, Split
from alfa.data.sources._base import SOURCES, Counts, Item, Listing, Problem, Source, Workspace
from alfa.data.sources._class_folders import (
    FoundClasses,
    Reader,
    archives_in,
    levels,
    not_found,
    read_class,
    root_folder,
    split_of_folder,
    subfolders,
)

# An archive may contain archives; the limit stops one that contains itself.
_MAX_NESTED = 2


@dataclass(frozen=True)
class ClassList:
    """The names of the classes of every split.

    If `by_number`, a folder name may be the number at the start of a class name: ``14`` or
    ``00014`` for the class ``014.Stop``.
    """

    splits: Mapping[Split, Sequence[str]]
    by_number: bool = False

    @functools.cached_property
    def split_of(self) -> dict[str, Split]:
        """The split of every class."""
        return {name: split for split, names in self.splits.items() for name in names}

    @functools.cached_property
    def _by_folder(self) -> dict[str | int, str]:
        names: dict[str | int, str] = {_folder_name(name): name for name in self.split_of}
        if self.by_number:
            names |= {int(name.partition(".")[0]): name for name in self.split_of}
        return names

    def name(self, folder: str) -> str | None:
        """Return the class of a folder name in any case, with underscores for slashes."""
        is_number = self.by_number and folder.isdecimal()
        key = int(folder) if is_number else _folder_name(folder)
        return folder if folder in self.split_of else self._by_folder.get(key)

    def num_matches(self, found: FoundClasses) -> int:
        """Count the listed classes that have images and are not under another split."""
        count = 0
        for entry in found.classes:
            name = self.name(entry.name)
            in_split = name is not None and entry.split in (None, self.split_of[name])
            count += bool(entry.items) and (entry.is_certain or in_split)
        return count

    def missing(self, found: FoundClasses) -> dict[Split, list[str]]:
        """Return the classes of each split that are not on disk."""
        names = {self.name(entry.name) for entry in found.classes}
        certain = {entry.split for entry in found.classes if entry.is_certain}
        return {
            split: [] if split in certain else [name for name in classes if name not in names]
            for split, classes in self.splits.items()
        }


def _folder_name(name: str) -> str:
    return name.casefold().replace("/", "_")


@functools.cache
def load_class_list(name: str, *, by_number: bool = False) -> ClassList:
    """Load the classes of every split: a list of names, or the leaves of a hierarchy."""
    content = read_split(name)
    return ClassList({split: _leaves(content[split]) for split in SPLITS}, by_number)


@functools.cache
def read_split(name: str) -> dict[str, Any]:
    """Read a split file from the package."""
    folder = resources.files("alfa.data") / "splits"
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return content


def _leaves(names: Sequence[str] | Mapping[str, Sequence[str]]) -> Sequence[str]:
    if not isinstance(names, Mapping):
        return names
    return sorted({child for children in names.values() for child in children} - set(names))


class PublishedSource(Source):
    """A dataset with published classes and splits."""

    list_name: str  # the split file in the package
    archives: Sequence[str] = ()  # lowercase patterns of the paths of archives to unpack
    depth: int = 1  # the number of nested folders that form the name of a class
    mixed_folders: Sequence[str] = ()  # names of folders that contain classes of any split
    split_folders: bool = True  # folders named after a split contain the classes of this split
    by_number: bool = False  # see `ClassList`

    def class_list(self) -> ClassList:
        return load_class_list(self.list_name, by_number=self.by_number)

    def readers(self, work: Workspace) -> Sequence[Reader]:
        """Return readers of the layouts, the most likely first."""
        return (self.read_class_folders,)

    def select(self, found: FoundClasses) -> FoundClasses:
        """Return the classes on disk that may belong to the dataset."""
        return found

    def find(self, path: Path, *, work: Workspace) -> Listing:
        found = self._locate(path, work)
        if not found:
            raise not_found(self, path)
        return _assign_splits(self.select(found), self.class_list(), self.published)

    def _locate(self, path: Path, work: Workspace, nested: int = 0) -> FoundClasses:
        """Read the folders below a path, and unpack archives until no class is missing."""
        root = root_folder(path, work)
        found = self._best_match(root, work)
        if not root.is_dir() or nested > _MAX_NESTED:
            return found
        for archive in archives_in(root, self.archives):
            if not any(self.class_list().missing(found).values()):
                break
            more = self._locate(archive, work, nested + 1)
            known = {entry.name for entry in found.classes}
            new = [entry for entry in more.classes if entry.name not in known]
            found += FoundClasses(new, more.problems if new else ())
        return found

    def _best_match(self, root: Path, work: Workspace) -> FoundClasses:
        """Return the classes of the folder with the most listed classes on the highest level."""
        readers = self.readers(work)
        for level in levels(root) if root.is_dir() else [[root]]:
            results = (next(filter(None, (read(path) for read in readers)), None) for path in level)
            if matches := [found for found in results if found]:
                return max(matches, key=self.class_list().num_matches)
        return FoundClasses()

    def read_class_folders(self, folder: Path) -> FoundClasses:
        """Read ``<class>/*`` or ``{train,val,test}/<class>/*`` if any class is on the list."""
        if not folder.is_dir():
            return FoundClasses()
        is_known = self.class_list().name
        groups: list[tuple[Split | None, Mapping[str, Path]]] = []
        for name, sub in subfolders(folder).items():
            split = split_of_folder(name) if self.split_folders else None
            if split or name in self.mixed_folders:
                groups.append((split, _nested(sub, self.depth)))
        # The class `train` of CIFAR-100 is not a split: its folder contains images.
        if not any(is_known(name) for _, named in groups for name in named):
            groups = [(None, _nested(folder, self.depth))]
            if not any(map(is_known, groups[0][1])):
                return FoundClasses()
        found = FoundClasses()
        for split, named in groups:
            for name, sub in named.items():
                found += read_class(sub, name, split)
        if not self.split_folders:
            found = FoundClasses.of(found.by_name(), found.problems)
        return found if any(entry.items for entry in found.classes) else FoundClasses()


def class_names(dataset: str, split: Split) -> Sequence[str]:
    """Return the classes of a published split."""
    source = SOURCES.get(dataset)()
    assert isinstance(source, PublishedSource)
    return source.class_list().splits[split]


def _nested(folder: Path, depth: int) -> dict[str, Path]:
    named = subfolders(folder)
    for _ in range(depth - 1):
        named = {
            f"{name}/{child}": path
            for name, parent in named.items()
            for child, path in subfolders(parent).items()
        }
    return named


def _assign_splits(found: FoundClasses, classes: ClassList, published: Counts) -> Listing:
    """Assign the classes on disk to the splits of the list, and report mismatches."""
    problems = list(found.problems)
    listed: dict[Split, dict[str, Sequence[Item]]] = {split: {} for split in SPLITS}
    for entry in sorted(found.classes, key=lambda entry: (entry.name, entry.split or "")):
        where = entry.name if entry.split is None else f"{entry.split}/{entry.name}"
        name = entry.name if entry.is_certain else classes.name(entry.name)
        split = entry.split if entry.is_certain or name is None else classes.split_of[name]
        if name is None or split is None:
            problems.append(Problem(where, "no split has a class of this name"))
        elif entry.split not in (None, split):
            what = f"the folder is under {entry.split}, but the class belongs to the {split} split"
            problems.append(Problem(where, what))
        elif name in listed[split]:
            what = "several folders contain this class; only one is used"
            problems.append(Problem(where, what, fatal=False))
        else:
            listed[split][name] = entry.items
    for split, names in classes.missing(found).items():
        if listed[split]:
            what = "this class of the published split is missing"
            problems += [Problem(f"{split}/{name}", what) for name in names]
    return Listing.of(listed, problems, published)
