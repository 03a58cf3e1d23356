"""Datasets that are only tested on: a model that was trained on another one meets them last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alfa.data._base import Split
from alfa.data.sources._base import Item, Listing, Source, Workspace
from alfa.data.sources._folder import find_classes, merged
from alfa.data.sources._published import against_published, emptied


def find_for_test(source: Source, path: Path, *, work: Workspace) -> Listing:
    """Class folders, all of them for test, held against what was published."""
    found = find_classes(source, path, work=work)
    listed: dict[Split, dict[str, Sequence[Item]]] = {"test": merged(found)}
    problems = [*found.problems, *emptied(listed), *against_published(listed, source.published)]
    return Listing(listed, problems)
