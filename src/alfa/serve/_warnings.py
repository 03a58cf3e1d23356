"""Possible problems of the examples of a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from alfa.data import copy_groups, similar_names
from alfa.serve._photo import Photo
from alfa.serve._state import PhotoClass, State, counted, quoted

# A class with less than this share of the photos of the largest class is underrepresented.
_MIN_SHARE = 1 / 3


@dataclass(frozen=True)
class Warning:
    """A possible problem of some examples."""

    code: Literal["duplicate", "imbalance", "similar-names", "small-photo", "one-photo"]
    text: str
    examples: list[str]


def find_warnings(state: State) -> Iterator[Warning]:
    """Yield warnings about copies, names, and the numbers and sizes of photos."""
    yield from _find_copies(state.support())
    for first, second in similar_names([each.name for each in state.classes]):
        text = f"{quoted(first)} and {quoted(second)} are nearly the same name."
        yield Warning("similar-names", text, [])
    classes = [each for each in state.classes if each.examples]
    largest = max(classes, key=lambda each: len(each.examples), default=None)
    for each in classes:
        count = len(each.examples)
        if count == 1:
            text = f"{quoted(each.name)} has only one photo, so its accuracy cannot be estimated."
            yield Warning("one-photo", text, [each.examples[0].id])
        elif largest is not None and count < _MIN_SHARE * len(largest.examples):
            most = f"{quoted(largest.name)} has {len(largest.examples)}"
            text = f"{quoted(each.name)} has {counted(count)}, but {most}; equal numbers are best."
            yield Warning("imbalance", text, [])
    for photo in state.photos():
        if photo.note is not None:
            yield Warning("small-photo", f"{quoted(photo.name)} {photo.note}.", [photo.id])


def _find_copies(support: list[tuple[Photo, PhotoClass]]) -> Iterator[Warning]:
    if not support:
        return
    groups: dict[int, list[tuple[Photo, PhotoClass]]] = {}
    grids = np.concatenate([photo.images.grids for photo, _ in support])
    for group, own in zip(copy_groups(grids).tolist(), support, strict=True):
        groups.setdefault(group, []).append(own)
    for copies in groups.values():
        names = list(dict.fromkeys(quoted(each.name) for _, each in copies))
        where = f"is {len(copies)} times in {names[0]}; copies add no information."
        if len(names) > 1:
            where = f"is in {' and '.join(names)}; delete it from all but one of them."
        if len(copies) > 1:
            text = f"{quoted(copies[0][0].name)} {where}"
            yield Warning("duplicate", text, [photo.id for photo, _ in copies])
