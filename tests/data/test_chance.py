"""The classes and images of tasks are drawn uniformly."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.data import SPLITS, FewShot, ImageSet


def sized(**counts: list[int]) -> ImageSet:
    """Create blank images with the given numbers for each class of each split."""
    arrays = {
        split: {
            f"{split}-{c}": np.zeros((count, 1, 2, 2), np.uint8) for c, count in enumerate(sizes)
        }
        for split, sizes in counts.items()
    }
    return ImageSet.of_arrays("blank", arrays)


def chi_square(counts: np.ndarray, *, without_replacement: int = 1) -> float:
    """Return Pearson's statistic of counts, in standard deviations from uniform chance.

    If each draw takes several distinct items, counts vary less, by a known factor.
    """
    counts = counts.ravel()
    expected = counts.mean()
    assert expected >= 20
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2).sum() / expected
    statistic *= freedom / (len(counts) - without_replacement)
    # Wilson and Hilferty: its cube root is very nearly normal.
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


# With these seeds; four standard deviations would come once in sixteen thousand seeds.


@pytest.mark.parametrize("seed", range(3))
def test_every_pair_of_classes_is_as_likely_in_either_order(seed):
    tasks = FewShot(sized(train=[4] * 6), way=2, shot=1, num_query=1)
    classes, _ = tasks.draw(0, num_tasks=6000, seed=seed)
    counts = np.zeros((6, 6))
    np.add.at(counts, (classes[:, 0], classes[:, 1]), 1)
    assert (np.diag(counts) == 0).all()
    assert abs(chi_square(counts[~np.eye(6, dtype=bool)])) < 4


@pytest.mark.parametrize("seed", range(3))
def test_every_pair_of_images_is_as_likely_in_either_role(seed):
    tasks = FewShot(sized(train=[6] * 5), way=5, shot=1, num_query=1)
    _, numbers = tasks.draw(0, num_tasks=2000, seed=seed)
    support, query = np.moveaxis(numbers % 6, -1, 0)
    counts = np.zeros((6, 6))
    np.add.at(counts, (support, query), 1)
    assert (np.diag(counts) == 0).all()
    assert abs(chi_square(counts[~np.eye(6, dtype=bool)])) < 4


def test_large_and_small_classes_are_as_likely_and_so_are_labels():
    tasks = FewShot(sized(train=[20, 100] * 10), way=5, shot=5, num_query=15)
    classes, _ = tasks.draw(0, num_tasks=4000)
    counts = np.bincount(classes.ravel(), minlength=20)
    assert abs(chi_square(counts, without_replacement=5)) < 4
    for label in range(5):
        assert abs(chi_square(np.bincount(classes[:, label], minlength=20))) < 4


def test_every_image_of_a_class_is_as_likely_to_be_learned_from_or_judged_on():
    tasks = FewShot(sized(test=[40] * 5), way=5, shot=5, num_query=15)
    _, numbers = tasks.draw(0, num_tasks=3000, split="test")
    for c in range(5):
        mine = numbers[(numbers // 40 == c).all(axis=2)] % 40
        assert mine.shape == (3000, 20)
        for part in (mine[:, :5], mine[:, 5:], mine):
            counts = np.bincount(part.ravel(), minlength=40)
            assert abs(chi_square(counts, without_replacement=part.shape[1])) < 4


def test_tasks_that_follow_each_other_are_independent():
    tasks = FewShot(sized(train=[2] * 6), way=1, shot=1, num_query=1)
    classes = tasks.draw(0, num_tasks=6001)[0][:, 0]
    counts = np.zeros((6, 6))
    np.add.at(counts, (classes[:-1], classes[1:]), 1)
    assert abs(chi_square(counts)) < 4


def test_seeds_and_splits_are_independent():
    counts = {split: [2] * 6 for split in SPLITS}
    tasks = FewShot(sized(**counts), way=1, shot=1, num_query=1)
    streams = [
        tasks.draw(0, num_tasks=3000, split=split, seed=seed)[0][:, 0]
        for split, seed in (("train", 0), ("train", 1), ("val", 0), ("test", 0))
    ]
    for one, other in ((0, 1), (0, 2), (0, 3), (2, 3)):
        pairs = np.zeros((6, 6))
        np.add.at(pairs, (streams[one], streams[other]), 1)
        assert abs(chi_square(pairs)) < 4


def test_the_statistic_sees_what_is_uneven():
    rng = np.random.default_rng(0)
    assert abs(chi_square(rng.multinomial(6000, [1 / 30] * 30))) < 4
    skewed = np.array([1.2] * 15 + [0.8] * 15) / 30
    assert chi_square(rng.multinomial(6000, skewed)) > 4
    assert chi_square(np.full(30, 200)) < -4
