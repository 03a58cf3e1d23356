"""Stratified folds of a few labeled photos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from alfa.errors import ConfigError

# More predictions hardly change the estimates.
_MIN_PREDICTIONS, _MAX_REPEATS = 50, 5


@dataclass(frozen=True, eq=False)
class Folds:
    """Sets of photos to hold out, one set after the other.

    Attributes:
        labels: class of each photo, from 0.
        groups: group of each photo; the photos of a group are never separated.
        held_out: indices of the photos that each fold holds out. A classifier trains on all others.
    """

    labels: np.ndarray
    groups: np.ndarray
    held_out: tuple[np.ndarray, ...]

    @property
    def num_photos(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the training photos and the held-out photos of each fold."""
        for held_out in self.held_out:
            yield np.setdiff1d(np.arange(self.num_photos), held_out), held_out

    def __len__(self) -> int:
        return len(self.held_out)


def stratified_folds(
    labels: Any,
    *,
    num_folds: int = 5,
    num_repeats: int | None = None,
    groups: Any = None,
    seed: int = 0,
) -> Folds:
    """Divide photos into folds so that each class keeps photos to train on.

    Every fold holds out the same share of each class, up to rounding. If a class has fewer photos
    than `num_folds`, there are as many folds as it has photos, because unequal shares put the
    class that loses more photos at a disadvantage. A class with one photo always stays in training.

    Args:
        labels: class of each photo, from 0 to the number of classes - 1.
        num_folds: number of folds, at least 2.
        num_repeats: number of times to divide the photos. By default, enough to hold out 50 photos,
            and at most 5.
        groups: group of each photo, such as near-duplicates; a fold holds out a whole group or none
            of it, and photos in a group with several classes are never held out. By default, each
            photo is its own group.
        seed: seed of the random division.

    Examples:
        >>> from alfa.assessment import stratified_folds
        >>> folds = stratified_folds([0, 0, 0, 1, 1, 1, 2], num_repeats=1)
        >>> len(folds), sorted(int(photo) for held_out in folds.held_out for photo in held_out)
        (3, [0, 1, 2, 3, 4, 5])
    """
    labels = _checked_labels(labels)
    groups = _checked_groups(groups, len(labels))
    _check_at_least("num_folds", num_folds, 2)
    if num_repeats is not None:
        _check_at_least("num_repeats", num_repeats, 1)
    units = _units(labels, groups)
    if not units:
        return Folds(labels, groups, ())
    num_folds = min(num_folds, min(map(len, units)))
    if num_repeats is None:
        num_held_out = sum(len(photos) for own in units for photos in own)
        num_repeats = min(_MAX_REPEATS, -(-_MIN_PREDICTIONS // num_held_out))
    rng = np.random.default_rng(seed)
    held_out = [fold for _ in range(num_repeats) for fold in _divide(units, num_folds, rng)]
    return Folds(labels, groups, tuple(held_out))


def _units(labels: np.ndarray, groups: np.ndarray) -> list[list[np.ndarray]]:
    """Return the groups of each class that folds may hold out, as indices of photos."""
    own: dict[int, list[np.ndarray]] = {}
    for group in np.unique(groups):
        photos = np.flatnonzero(groups == group)
        if len(classes := np.unique(labels[photos])) == 1:
            own.setdefault(int(classes[0]), []).append(photos)
    return [own[label] for label in sorted(own) if len(own[label]) > 1]


def _divide(
    units: list[list[np.ndarray]], num_folds: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Deal the groups of each class to folds, continuing with the next fold for the next class."""
    folds: list[list[np.ndarray]] = [[] for _ in range(num_folds)]
    dealt = 0
    for own in units:
        for number in rng.permutation(len(own)):
            folds[dealt % num_folds].append(own[number])
            dealt += 1
    return [np.sort(np.concatenate(parts)) for parts in folds]


def _checked_labels(labels: Any) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu":
        raise ConfigError(
            "`labels` must be a class number for each photo, got an array of shape "
            f"{list(labels.shape)} and type {labels.dtype}."
        )
    found = np.unique(labels)
    if found[0] < 0 or found[-1] != len(found) - 1:
        raise ConfigError(
            f"`labels` must contain each class from 0 to the number of classes - 1, got "
            f"{found.tolist()}; number the classes with np.unique(labels, return_inverse=True)."
        )
    if len(found) < 2:
        raise ConfigError("`labels` must contain at least 2 classes, got 1.")
    return np.asarray(labels, dtype=int)


def _checked_groups(groups: Any, num_photos: int) -> np.ndarray:
    if groups is None:
        return np.arange(num_photos)
    groups = np.asarray(groups)
    if groups.shape != (num_photos,):
        raise ConfigError(
            f"`groups` must contain a group for each of {num_photos} photos, got an array of shape "
            f"{list(groups.shape)}."
        )
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def _check_at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"`{name}` must be at least {minimum}, got {value}.")
