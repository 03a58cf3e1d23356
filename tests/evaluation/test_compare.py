"""Paired and unpaired differences between models."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from alfa.errors import ConfigError
from alfa.evaluation import Evaluation, difference
from alfa.evaluation._compare import unpaired_difference


def found(figures: list[float], **options: Any) -> Evaluation:
    settings = {
        "loss": 1.0,
        "interval": None,
        "accuracy": statistics.mean(figures),
        "accuracy_interval": None,
        "num_tasks": len(figures),
        "num_steps": 5,
        "split": "test",
        "seed": 0,
        "batch_norm": None,
        "per_task": tuple(figures),
    }
    return Evaluation(**{**settings, **options})


def test_the_interval_is_that_of_the_differences() -> None:
    ours, theirs = [0.9, 0.5, 0.7, 0.4], [0.8, 0.5, 0.5, 0.3]
    over = difference(found(ours), found(theirs))
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert over.mean == pytest.approx(0.1)
    assert over.interval == pytest.approx(1.96 * statistics.stdev(differences) / math.sqrt(4))


def test_a_small_difference_on_every_task_is_decided() -> None:
    tasks = [0.02 * number for number in range(40)]
    better = [accuracy + 0.01 for accuracy in tasks]
    assert difference(found(better), found(tasks)).is_decided
    assert difference(found(tasks), found(better)).mean == pytest.approx(-0.01)


@pytest.mark.parametrize("ours", [[0.9, 0.1] * 20, [0.5] * 40])
def test_chance_decides_nothing(ours) -> None:
    assert not difference(found(ours), found([0.5] * 40)).is_decided


@pytest.mark.parametrize(("count", "is_decided"), [(1, False), (2, False), (29, False), (30, True)])
def test_few_tasks_decide_nothing(count, is_decided) -> None:
    over = difference(found([0.54] * count), found([0.5] * count))
    assert over.is_decided == is_decided
    assert (over.interval is None) == (count == 1)


def test_figures_of_single_tasks_are_needed() -> None:
    with pytest.raises(ConfigError, match="needs the results of all 2 tasks, got 0"):
        difference(found([0.5, 0.5]), found([0.5, 0.5], per_task=()))


def test_without_pairs_the_interval_is_that_of_two_means() -> None:
    ours, theirs = [0.9, 0.5, 0.7, 0.4] * 10, [0.8, 0.5, 0.5, 0.3] * 10
    spreads = [statistics.stdev(figures) for figures in (ours, theirs)]
    one, two = (
        found(figures, accuracy_interval=1.96 * spread / math.sqrt(40), per_task=())
        for figures, spread in zip((ours, theirs), spreads, strict=True)
    )
    over = unpaired_difference(one, two)
    assert over.mean == pytest.approx(0.1)
    assert over.interval == pytest.approx(1.96 * math.sqrt(sum(s**2 / 40 for s in spreads)))
    assert over.num_tasks == 40
    assert over.is_decided
    assert difference(found(ours), found(theirs)).interval < over.interval
    assert unpaired_difference(one, found(theirs)).interval is None


@pytest.mark.parametrize(("name", "value"), [("num_tasks", 3), ("split", "val"), ("seed", 1)])
def test_other_tasks_are_refused(name, value) -> None:
    ours = found([0.5, 0.5])
    with pytest.raises(ConfigError, match=f"but `{name}` is {getattr(ours, name)} and {value}"):
        difference(ours, found([0.5, 0.5], **{name: value}))


def test_an_accuracy_is_not_compared_with_a_loss() -> None:
    with pytest.raises(ConfigError, match="cannot be compared with the"):
        difference(found([0.5]), found([0.5], accuracy=None))
