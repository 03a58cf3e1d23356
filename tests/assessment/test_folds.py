"""Stratified folds."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import stratified_folds
from alfa.errors import ConfigError


@pytest.mark.parametrize(
    ("counts", "num_folds"),
    [
        ([5, 5], 5),
        ([2] * 3, 2),
        ([3, 4, 7], 3),
        ([40, 5, 5, 5, 5], 5),
        ([5, 5, 1], 5),
        ([5] * 200, 5),
        ([40, 2], 2),
    ],
)
def test_each_class_keeps_training_photos_and_is_held_out_equally(counts, num_folds) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    folds = stratified_folds(labels, num_repeats=1)
    assert len(folds) == num_folds
    for train, held_out in folds:
        assert set(train) | set(held_out) == set(range(len(labels)))
        assert not set(train) & set(held_out)
        kept = np.bincount(labels[train], minlength=len(counts))
        assert (kept >= 1).all()
        for label, count in enumerate(counts):
            if count > 1:
                assert count - kept[label] in (count // num_folds, -(-count // num_folds))
    held_out = np.sort(np.concatenate(folds.held_out))
    # Each photo once, except for the photo of a class with a single photo.
    assert held_out.tolist() == np.flatnonzero(np.array(counts)[labels] > 1).tolist()


def test_sizes_of_folds_differ_little() -> None:
    folds = stratified_folds(np.repeat(np.arange(10), 7), num_repeats=1)
    sizes = [len(held_out) for held_out in folds.held_out]
    assert max(sizes) - min(sizes) <= 1


def test_the_seed_determines_the_folds() -> None:
    labels = np.repeat([0, 1, 2], 6)
    first, same, other = (stratified_folds(labels, seed=seed) for seed in (3, 3, 4))

    def sets(folds):
        return [held_out.tolist() for held_out in folds.held_out]

    assert sets(first) == sets(same)
    assert sets(first) != sets(other)


@pytest.mark.parametrize(("count", "num_repeats"), [(2, 5), (5, 2), (10, 1), (12, 1)])
def test_few_photos_are_divided_repeatedly(count, num_repeats) -> None:
    folds = stratified_folds(np.repeat(np.arange(5), count))
    times = np.bincount(np.concatenate(folds.held_out))
    assert times.tolist() == [num_repeats] * (5 * count)


def test_one_photo_of_each_class_leaves_nothing_to_hold_out() -> None:
    folds = stratified_folds([0, 1, 2])
    assert len(folds) == 0
    assert folds.num_classes == 3


def test_near_duplicates_stay_together() -> None:
    labels = np.repeat([0, 1], 6)
    groups = ["a", "a", "b", "b", "c", "d", "e", "e", "e", "f", "g", "g"]
    folds = stratified_folds(labels, groups=groups)
    # Class 1 consists of three groups.
    assert len(folds) % 3 == 0
    for train, held_out in folds:
        assert not {groups[photo] for photo in train} & {groups[photo] for photo in held_out}
        assert set(labels[train]) == {0, 1}


def test_a_class_with_one_group_is_never_held_out() -> None:
    labels = np.repeat([0, 1], 4)
    folds = stratified_folds(labels, groups=[0, 0, 0, 0, 1, 2, 3, 4])
    assert set(np.concatenate(folds.held_out)) == {4, 5, 6, 7}


def test_a_group_with_two_classes_is_never_held_out() -> None:
    labels = np.repeat([0, 1], 4)
    folds = stratified_folds(labels, groups=[0, 1, 2, 9, 9, 3, 4, 5])
    assert set(np.concatenate(folds.held_out)) == {0, 1, 2, 5, 6, 7}


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 2], {}, r"each class from 0 .* got \[0, 2\]"),
        ([-1, 0, 1], {}, r"got \[-1, 0, 1\]"),
        ([0, 0], {}, "at least 2 classes, got 1"),
        ([], {}, "a class number for each photo"),
        ([0.0, 1.0], {}, "type float64"),
        (["a", "b"], {}, "a class number"),
        ([[0, 1]], {}, r"shape \[1, 2\]"),
        ([0, 1], {"num_folds": 1}, "`num_folds` must be at least 2, got 1"),
        ([0, 1], {"num_repeats": 0}, "`num_repeats` must be at least 1, got 0"),
        ([0, 1], {"groups": [1]}, "a group for each of 2 photos"),
    ],
)
def test_invalid_arguments(labels, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        stratified_folds(labels, **options)
