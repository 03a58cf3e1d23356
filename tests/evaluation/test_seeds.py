"""Statistics over seeds, against scipy's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy import stats

from alfa.evaluation import (
    Evaluation,
    mean_over_seeds,
    seed_difference_interval,
    seed_statistics,
)

FIRST, SECOND = [0.61, 0.63, 0.60, 0.66, 0.62], [0.65, 0.64, 0.69]


def test_the_interval_over_seeds_is_students() -> None:
    found = seed_statistics(FIRST)
    low, high = stats.ttest_1samp(FIRST, 0).confidence_interval(0.95)
    assert (found.mean - found.interval, found.mean + found.interval) == pytest.approx((low, high))
    assert found.std == pytest.approx(stats.tstd(FIRST))
    assert found.num_runs == 5


def test_one_run_has_no_spread() -> None:
    found = seed_statistics([0.5])
    assert (found.mean, found.std, found.interval, found.num_runs) == (0.5, None, None, 1)
    assert seed_difference_interval([0.5], SECOND) is None


def test_the_interval_of_a_difference_is_welchs() -> None:
    welch = stats.ttest_ind(FIRST, SECOND, equal_var=False).confidence_interval(0.95)
    width = (welch.high - welch.low) / 2
    assert seed_difference_interval(FIRST, SECOND) == pytest.approx(width)
    assert seed_difference_interval([0.5, 0.5], [0.5, 0.5]) == 0


def test_the_mean_over_seeds_is_taken_task_by_task() -> None:
    tasks = [(0.2, 0.4, 0.9), (0.4, 0.6, 0.5)]
    base = Evaluation(1.0, 0.1, 0.5, 0.1, 3, 5, "test", 0, None)
    found = mean_over_seeds([replace(base, per_task=figures) for figures in tasks])
    assert found.per_task == pytest.approx((0.3, 0.5, 0.7))
    assert found.accuracy == pytest.approx(0.5)
    # 1.96 standard errors of 0.3, 0.5 and 0.7.
    assert found.accuracy_interval == pytest.approx(1.96 * 0.2 / 3**0.5)
    assert found.interval is None
    losses = [replace(base, accuracy=None, per_task=figures) for figures in tasks]
    assert mean_over_seeds(losses).loss == pytest.approx(0.5)
    assert mean_over_seeds(losses[:1]) is losses[0]
