"""Models held against each other on the same tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from alfa.errors import ConfigError
from alfa.evaluation._evaluate import Evaluation, mean_and_interval

# Below this the interval, which is that of many tasks, is too narrow.
_FEWEST_TASKS = 30


@dataclass(frozen=True)
class Difference:
    """How much higher the figure of one model is than another's.

    Attributes:
        mean: over tasks, of accuracies, or of losses; positive where the figure is higher.
        interval: half the width of its 95 % confidence interval; None for one task.
        num_tasks: that it was taken over.
    """

    mean: float
    interval: float | None
    num_tasks: int

    @property
    def fewest_tasks(self) -> int:
        """With fewer, nothing is decided."""
        return _FEWEST_TASKS

    @property
    def is_decided(self) -> bool:
        """Whether chance alone does not explain it, at 95 %; few tasks cannot tell."""
        if self.interval is None or self.num_tasks < self.fewest_tasks:
            return False
        return abs(self.mean) > self.interval


def difference(found: Evaluation, other: Evaluation) -> Difference:
    """The first against the second, task by task.

    Tasks differ in difficulty far more than models do, and a difference taken on each task is free
    of that: its interval is narrower than those of the two figures suggest.

    Args:
        found: of a model.
        other: of another, on the same tasks.

    Raises:
        ConfigError: their tasks are not the same.
    """
    _check_comparable(found, other)
    for evaluation in (found, other):
        if len(evaluation.per_task) != evaluation.num_tasks:
            raise ConfigError(
                f"there are figures of {len(evaluation.per_task)} single tasks, but it takes all "
                f"{evaluation.num_tasks} to compare; evaluate the run again, as its result does "
                "not keep them."
            )
    ours, theirs = (torch.tensor(x.per_task, dtype=torch.float64) for x in (found, other))
    return Difference(*mean_and_interval(ours - theirs), found.num_tasks)


def unpaired_difference(found: Evaluation, other: Evaluation) -> Difference:
    """The first against the second by their means and intervals alone, as on Meta-Dataset's board.

    Its interval is 1.96 sqrt(s1^2 / n1 + s2^2 / n2), as if each had met tasks of its own, and so
    wider than that of `difference`.

    Args:
        found: of a model.
        other: of another, on the same tasks.

    Raises:
        ConfigError: their tasks are not the same.
    """
    _check_comparable(found, other)
    (ours, own), (theirs, others) = _figure(found), _figure(other)
    interval = None if own is None or others is None else math.hypot(own, others)
    return Difference(ours - theirs, interval, found.num_tasks)


def _figure(found: Evaluation) -> tuple[float, float | None]:
    """The accuracy, or else the loss, with its interval."""
    if found.accuracy is None:
        return found.loss, found.interval
    return found.accuracy, found.accuracy_interval


def _check_comparable(found: Evaluation, other: Evaluation) -> None:
    for name in ("num_tasks", "split", "seed"):
        ours, theirs = getattr(found, name), getattr(other, name)
        if ours != theirs:
            raise ConfigError(
                f"only figures on the same tasks can be compared, but `{name}` is {ours} and "
                f"{theirs}."
            )
    if (found.accuracy is None) != (other.accuracy is None):
        raise ConfigError("an accuracy cannot be compared with a loss; compare runs of one kind.")
