"""Comparison of two models on the same tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from alfa.errors import ConfigError
from alfa.evaluation._evaluate import Evaluation, mean_and_interval

# The normal approximation of the interval is too narrow for fewer tasks.
_FEWEST_TASKS = 30


@dataclass(frozen=True)
class Difference:
    """The difference between two models in accuracy, or in loss for regression.

    Attributes:
        mean: the mean over tasks; positive if the first model has the higher value.
        interval: half the width of the 95 % confidence interval of `mean`; None for one task.
        num_tasks: number of tasks.
    """

    mean: float
    interval: float | None
    num_tasks: int

    @property
    def fewest_tasks(self) -> int:
        """The number of tasks from which a difference can be significant."""
        return _FEWEST_TASKS

    @property
    def is_decided(self) -> bool:
        """Whether the difference is significant at the 95 % level."""
        if self.interval is None or self.num_tasks < self.fewest_tasks:
            return False
        return abs(self.mean) > self.interval


def difference(found: Evaluation, other: Evaluation) -> Difference:
    """Return the paired difference between two evaluations on the same tasks.

    Tasks differ in difficulty far more than models do. A paired difference removes this variation,
    so its interval is narrower than the two separate intervals suggest.

    Raises:
        ConfigError: the tasks differ, or the results of single tasks are missing.
    """
    _check_comparable(found, other)
    for evaluation in (found, other):
        if len(evaluation.per_task) != evaluation.num_tasks:
            raise ConfigError(
                f"a comparison needs the results of all {evaluation.num_tasks} tasks, got "
                f"{len(evaluation.per_task)}; evaluate the run again, because its result file does "
                "not store them."
            )
    ours, theirs = (torch.tensor(x.per_task, dtype=torch.float64) for x in (found, other))
    return Difference(*mean_and_interval(ours - theirs), found.num_tasks)


def unpaired_difference(found: Evaluation, other: Evaluation) -> Difference:
    """Return the difference between two means, as on the leaderboard of Meta-Dataset.

    Its interval, 1.96 sqrt(s1^2 / n1 + s2^2 / n2), treats the tasks as independent, so it is wider
    than the interval of `difference`.

    Raises:
        ConfigError: the tasks differ.
    """
    _check_comparable(found, other)
    (ours, own), (theirs, others) = _mean_and_interval(found), _mean_and_interval(other)
    interval = None if own is None or others is None else math.hypot(own, others)
    return Difference(ours - theirs, interval, found.num_tasks)


def _mean_and_interval(found: Evaluation) -> tuple[float, float | None]:
    """Return the accuracy, or the loss for regression, with its interval."""
    if found.accuracy is None:
        return found.loss, found.interval
    return found.accuracy, found.accuracy_interval


def _check_comparable(found: Evaluation, other: Evaluation) -> None:
    for name in ("num_tasks", "split", "seed"):
        ours, theirs = getattr(found, name), getattr(other, name)
        if ours != theirs:
            raise ConfigError(
                f"only results on the same tasks can be compared, but `{name}` is {ours} and "
                f"{theirs}."
            )
    if (found.accuracy is None) != (other.accuracy is None):
        raise ConfigError(
            "an accuracy cannot be compared with a loss; compare runs of the same kind of tasks."
        )
