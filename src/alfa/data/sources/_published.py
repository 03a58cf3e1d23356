"""Datasets with published splits: compare the classes on disk with the published lists."""

from __future__ import annotations

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
    FoundClass,
    FoundClasses,
    Reader,
    find_classes,
    locate,
    not_found,
    read_class,
    split_of_folder,
    subfolders,
)


@dataclass(frozen=True)
class ClassList:
    """The classes of every split.

    Attributes:
        splits: the names of the classes of each.
        by_number: folders are named after the number that the name of a class begins with, so
            that the folder of ``014.Stop`` may be ``14`` or ``00014``.
    """

    splits: Mapping[Split, Sequence[str]]
    by_number: bool = False

    @functools.cached_property
    def split_of(self) -> dict[str, Split]:
        """The split of every class."""
        return {name: split for split, names in self.splits.items() for name in names}

    def name(self, written: str) -> str | None:
        """The class that a folder is named after, whatever its case; None if there is none.

        A slash in the name of a class is an underscore in the name of a folder.
        """
        if written in self.split_of:
            return written
        if self.by_number and written.isdecimal():
            return self._by_number.get(int(written))
        return self._by_folder.get(_folder_name(written))

    @functools.cached_property
    def _by_folder(self) -> dict[str, str]:
        return {_folder_name(name): name for name in self.split_of}

    @functools.cached_property
    def _by_number(self) -> dict[int, str]:
        return {int(name.partition(".")[0]): name for name in self.split_of}

    def is_right(self, found: FoundClass) -> bool:
        """Whether a class is on the list, has images, and is not under another split."""
        if found.is_certain or not found.items:
            return bool(found.items)
        name = self.name(found.name)
        return name is not None and found.split in (None, self.split_of[name])

    def missing(self, found: FoundClasses) -> dict[Split, list[str]]:
        """The classes of each split that are not there."""
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
    """A list that ships with the package: names, or a hierarchy whose leaves are the classes."""
    content = read_split(name)
    splits = {split: content[split] for split in SPLITS}
    return ClassList(
        {s: _leaves(names) if isinstance(names, dict) else names for s, names in splits.items()},
        by_number,
    )


@functools.cache
def read_split(name: str) -> dict[str, Any]:
    """A file of lists that ships with the package."""
    folder = resources.files("alfa.data") / "splits"
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return content


def _leaves(children: Mapping[str, Sequence[str]]) -> list[str]:
    """The nodes of a hierarchy that have no children."""
    return sorted({child for below in children.values() for child in below} - set(children))


class PublishedSource(Source):
    """A dataset whose classes and splits are published.

    Attributes:
        list_name: the list of its classes, a file that ships with the package.
        archives: patterns of the paths of its archives, in lower case.
    """

    list_name: str
    archives: Sequence[str] = ()

    def class_list(self) -> ClassList:
        return load_class_list(self.list_name)

    def readers(self, work: Workspace) -> Sequence[Reader]:
        """Readers of its layouts, the likeliest first."""
        return (class_folders(self.class_list()),)

    def select(self, found: FoundClasses) -> FoundClasses:
        """The classes on disk that may belong to the dataset."""
        return found

    def find(self, path: Path, *, work: Workspace) -> Listing:
        classes = self.class_list()
        found = locate(
            path,
            work=work,
            readers=self.readers(work),
            archives=self.archives,
            score=lambda some: sum(map(classes.is_right, some.classes)),
            is_complete=lambda some: not any(classes.missing(some).values()),
        )
        if not found:
            raise not_found(self, path)
        return _assign_splits(self.select(found), classes, self.published)


class OnlyTestSource(Source):
    """A dataset in class folders, all of them for test."""

    def find(self, path: Path, *, work: Workspace) -> Listing:
        found = find_classes(self, path, work=work)
        listed: dict[Split, dict[str, Sequence[Item]]] = {"test": found.by_name()}
        problems = [*found.problems, *drop_empty(listed), *_compare(listed, self.published)]
        return Listing(listed, problems)


def class_names(dataset: str, split: Split) -> Sequence[str]:
    """The classes of a published split."""
    source = SOURCES.get(dataset)()
    assert isinstance(source, PublishedSource)
    return source.class_list().splits[split]


def class_folders(
    classes: ClassList, *, depth: int = 1, parts: Sequence[str] = (), splits: bool = True
) -> Reader:
    """A reader of ``<class>/*``, or ``{train,val,test}/<class>/*``.

    Args:
        classes: the list; a folder without any of its classes has another layout.
        depth: the number of folders that make up the name of a class.
        parts: names of folders that contain classes of any split.
        splits: folders that are named after a split contain its classes.
    """

    def read(folder: Path) -> FoundClasses:
        if not folder.is_dir():
            return FoundClasses()
        under = [
            (split_of_folder(name) if splits else None, _nested(sub, depth))
            for name, sub in subfolders(folder).items()
            if (splits and split_of_folder(name)) or name in parts
        ]
        # The class `train` of CIFAR-100 is no split: its folder contains images, not classes.
        if not has_known(under):
            under = [(None, _nested(folder, depth))]
        found = FoundClasses()
        for split, named in under if has_known(under) else ():
            for name, sub in named.items():
                found += read_class(sub, name, split)
        if not splits:
            found = FoundClasses.of(found.by_name(), found.problems)
        return found if any(entry.items for entry in found.classes) else FoundClasses()

    def has_known(under: Sequence[tuple[Split | None, Mapping[str, Path]]]) -> bool:
        return any(classes.name(name) for _, named in under for name in named)

    return read


def _nested(folder: Path, depth: int) -> dict[str, Path]:
    named = {"": folder}
    for _ in range(depth):
        named = {
            f"{name}/{child}" if name else child: path
            for name, parent in named.items()
            for child, path in subfolders(parent).items()
        }
    return named


def _assign_splits(found: FoundClasses, classes: ClassList, published: Counts) -> Listing:
    """Assign the classes on disk to the splits of the list; what does not fit is a problem."""
    problems = list(found.problems)
    listed: dict[Split, dict[str, Sequence[Item]]] = {split: {} for split in SPLITS}
    for entry in sorted(found.classes, key=lambda entry: (entry.name, entry.split or "")):
        name = entry.name if entry.is_certain else classes.name(entry.name)
        split = entry.split if entry.is_certain or name is None else classes.split_of[name]
        if name is None or split is None:
            problems.append(Problem(entry.where, "no split has a class of this name"))
        elif entry.split not in (None, split):
            what = f"it lies under {entry.split}, but is a class of the {split} split"
            problems.append(Problem(entry.where, what))
        elif name in listed[split]:
            what = "the class is there twice; only one is used"
            problems.append(Problem(entry.where, what, fatal=False))
        else:
            listed[split][name] = entry.items
    for split, names in classes.missing(found).items():
        if listed[split]:
            what = "a class of the published split that is not there"
            problems += [Problem(f"{split}/{name}", what) for name in names]
    problems += drop_empty(listed)
    problems += _compare(listed, published)
    full = {split: dict(sorted(listed[split].items())) for split in SPLITS if listed[split]}
    return Listing(full, problems)


def drop_empty(listed: Mapping[Split, dict[str, Sequence[Item]]]) -> list[Problem]:
    """Remove the classes without images, and report them."""
    problems = []
    for split, members in listed.items():
        for name in [name for name, items in members.items() if not items]:
            del members[name]
            problems.append(Problem(f"{split}/{name}", "the class has no images"))
    return problems


def _compare(
    listed: Mapping[Split, Mapping[str, Sequence[Item]]], published: Counts
) -> list[Problem]:
    """Report splits with more or fewer classes or images than published."""
    problems = []
    for split, (num_classes, num_images) in published.items():
        members = listed.get(split, {})
        count = sum(map(len, members.values()))
        if len(members) != num_classes or num_images not in (None, count):
            wanted = (
                f"{num_classes:,}" if num_images is None else f"{num_images:,} in {num_classes:,}"
            )
            what = (
                f"{count:,} images in {len(members):,} classes, but the published split has "
                f"{wanted}"
            )
            problems.append(Problem(split, what, fatal=False))
    return problems
