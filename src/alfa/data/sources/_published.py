"""A dataset whose classes and splits are published: what is on disk, held against the list."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from alfa.data._base import SPLITS, Split
from alfa.data.sources._base import Item, Listing, Problem, Source, Workspace
from alfa.data.sources._folders import (
    ClassFound,
    Found,
    Reader,
    read_class,
    split_named,
    subfolders,
)
from alfa.data.sources._locate import locate
from alfa.errors import DataError

Under = Sequence[tuple[Split | None, Mapping[str, Path]]]
"""Folders of classes by name, with the split that they lie under."""


@dataclass(frozen=True)
class ClassList:
    """The classes of every split.

    Attributes:
        splits: the names of the classes of each.
        split_of: the split of every class.
        by_number: folders are called after the number that the name of a class begins with, so
            that that of ``014.Stop`` may be ``14`` or ``00014``.
    """

    splits: Mapping[Split, Sequence[str]]
    split_of: Mapping[str, Split]
    by_number: bool = False

    def name(self, written: str) -> str | None:
        """The class that a folder is called after, whatever its case; None if there is none.

        A slash in the name of a class is an underscore in that of a folder.
        """
        if written in self.split_of:
            return written
        if self.by_number and written.isdecimal():
            return self._numbered.get(int(written))
        return self._written.get(_plain(written))

    @functools.cached_property
    def _written(self) -> dict[str, str]:
        return {_plain(name): name for name in self.split_of}

    @functools.cached_property
    def _numbered(self) -> dict[int, str]:
        return {int(name.partition(".")[0]): name for name in self.split_of}

    def is_right(self, found: ClassFound) -> bool:
        """Whether a class is one of the list, has images, and is not under another split."""
        if found.is_certain or not found.items:
            return bool(found.items)
        name = self.name(found.name)
        return name is not None and found.split in (None, self.split_of[name])

    def missing(self, found: Found) -> dict[Split, list[str]]:
        """The classes of each split that are not there."""
        names = {self.name(entry.name) for entry in found.classes}
        certain = {entry.split for entry in found.classes if entry.is_certain}
        return {
            split: [] if split in certain else [name for name in classes if name not in names]
            for split, classes in self.splits.items()
        }


def _plain(name: str) -> str:
    return name.casefold().replace("/", "_")


@functools.cache
def class_list(name: str) -> ClassList:
    """The list that ships with the package."""
    content = read_split(name)
    splits: dict[Split, list[str]] = {split: list(content[split]) for split in SPLITS}
    if name == "md-ilsvrc":
        splits = {split: _leaves(content[split]) for split in SPLITS}
    elif name == "md-omniglot":
        # Its list names alphabets, not characters.
        every = [n for names in read_split("omniglot").values() for n in names]
        splits = {
            split: sorted(n for n in every if n.partition("/")[0] in content[split])
            for split in SPLITS
        }
    split_of = {member: split for split, members in splits.items() for member in members}
    return ClassList(splits, split_of, by_number=name in ("md-flower", "md-traffic-sign"))


def class_names(dataset: str, split: Split) -> Sequence[str]:
    """The classes that a published split has."""
    return class_list(dataset).splits[split]


@functools.cache
def read_split(name: str) -> dict[str, Any]:
    """A file of lists that ships with the package."""
    folder = resources.files("alfa.data") / "splits"
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return content


def _leaves(children: Mapping[str, Sequence[str]]) -> list[str]:
    """The nodes of a hierarchy that have no children."""
    return sorted({child for below in children.values() for child in below} - set(children))


def find_published(
    source: Source,
    classes: ClassList,
    path: Path,
    *,
    work: Workspace,
    readers: Sequence[Reader],
    archives: Sequence[str],
    cut_from: ClassList | None = None,
) -> Listing:
    """Find a dataset and hold it against its published list.

    Args:
        source: the dataset.
        classes: its list.
        path: where the user says that it is.
        work: for what must be unpacked.
        readers: of the layouts, the likeliest first.
        archives: patterns of the paths of its archives, in lower case, seen from `path`.
        cut_from: the list of a larger dataset, whose other classes may lie beside its own.

    Raises:
        DataError: nothing of it is there.
    """
    found = locate(
        path,
        work=work,
        readers=readers,
        archives=archives,
        score=lambda some: sum(map(classes.is_right, some.classes)),
        is_complete=lambda some: not any(classes.missing(some).values()),
    )
    if not found:
        raise nothing_found(source, path)
    if cut_from is not None:
        found = _without_others(found, classes, cut_from)
    return arrange(found, classes, source.published)


def _without_others(found: Found, classes: ClassList, larger: ClassList) -> Found:
    """What was found without the classes that only a larger dataset has."""
    left = [
        entry
        for entry in found.classes
        if entry.is_certain or classes.name(entry.name) or not larger.name(entry.name)
    ]
    count = len(found.classes) - len(left)
    if not count:
        return found
    what = f"{count:,} classes that are there are none of its own, and left out"
    return Found(left, [*found.problems, Problem("ImageNet", what, fatal=False)])


def nothing_found(source: Source, path: Path) -> DataError:
    """The error for a path that holds nothing of a dataset."""
    return DataError(
        f"found no {source.title} under {path}; looked for {'; or '.join(source.layouts)}."
    )


def class_folders(
    classes: ClassList, *, depth: int = 1, parts: Sequence[str] = (), splits: bool = True
) -> Reader:
    """A reader of ``<class>/*``, or ``{train,val,test}/<class>/*``.

    Args:
        classes: the list; a folder with none of its classes is another layout.
        depth: how many folders make up the name of a class.
        parts: names of folders that hold classes of any split.
        splits: folders that are called after a split hold its classes.
    """

    def read(folder: Path) -> Found:
        if not folder.is_dir():
            return Found()
        under: Under = [
            (split_named(name) if splits else None, _nested(sub, depth))
            for name, sub in subfolders(folder).items()
            if (splits and split_named(name)) or name in parts
        ]
        # The class `train` of CIFAR-100 is no split: its folder holds images, not classes.
        if not has_known(under):
            under = [(None, _nested(folder, depth))]
        found = Found()
        for split, named in under if has_known(under) else ():
            for name, sub in named.items():
                found += read_class(sub, name, split)
        if not splits:
            found = _joined(found)
        return found if any(entry.items for entry in found.classes) else Found()

    def has_known(under: Under) -> bool:
        return any(classes.name(name) for _, named in under for name in named)

    return read


def _joined(found: Found) -> Found:
    """Every class once, with its images from all folders."""
    items: dict[str, list[Item]] = {}
    for entry in found.classes:
        items.setdefault(entry.name, []).extend(entry.items)
    return Found([ClassFound(name, own) for name, own in items.items()], found.problems)


def _nested(folder: Path, depth: int) -> dict[str, Path]:
    named = {"": folder}
    for _ in range(depth):
        named = {
            f"{name}/{child}" if name else child: path
            for name, parent in named.items()
            for child, path in subfolders(parent).items()
        }
    return named


def arrange(
    found: Found, classes: ClassList, published: Mapping[Split, tuple[int, int | None]]
) -> Listing:
    """Put what was found under the splits of the list, and say what does not fit."""
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
            problems.append(
                Problem(entry.where, "the class is there twice; only one is used", fatal=False)
            )
        else:
            listed[split][name] = entry.items
    for split, names in classes.missing(found).items():
        if listed[split]:
            what = "a class of the published split that is not there"
            problems += [Problem(f"{split}/{name}", what) for name in names]
    problems += emptied(listed)
    problems += against_published(listed, published)
    full = {split: dict(sorted(listed[split].items())) for split in SPLITS if listed[split]}
    return Listing(full, problems)


def emptied(listed: Mapping[Split, dict[str, Sequence[Item]]]) -> list[Problem]:
    """Take out the classes without images, and say so."""
    problems = []
    for split, members in listed.items():
        for name in [name for name, items in members.items() if not items]:
            del members[name]
            problems.append(Problem(f"{split}/{name}", "the class has no images"))
    return problems


def against_published(
    listed: Mapping[Split, Mapping[str, Sequence[Item]]],
    published: Mapping[Split, tuple[int, int | None]],
) -> list[Problem]:
    """Say where there is more or less than was published, as far as that is known."""
    problems = []
    for split, (num_classes, num_images) in published.items():
        members = listed.get(split, {})
        count = sum(map(len, members.values()))
        expected = count if num_images is None else num_images
        if (len(members), count) != (num_classes, expected):
            wanted = (
                f"{num_classes:,}" if num_images is None else f"{num_images:,} in {num_classes:,}"
            )
            what = (
                f"{count:,} images in {len(members):,} classes, but the published split has "
                f"{wanted}"
            )
            problems.append(Problem(split, what, fatal=False))
    return problems
