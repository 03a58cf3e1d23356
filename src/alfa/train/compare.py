"""Models held against each other on the same tasks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from alfa.errors import ConfigError
from alfa.train.evaluate import Evaluation, mean_and_interval

# Below this the interval, which is that of many tasks, is too narrow.
_FEWEST_TASKS = 30


@dataclass(frozen=True)
class Difference:
    """How much higher the figure of one model is than another's, task by task.

    Tasks differ in difficulty far more than models do, and a difference taken on each task is free
    of that: its interval is narrower than those of the two figures suggest.

    Attributes:
        mean: over tasks, of accuracies, or of losses; positive where the figure is higher.
        interval: half the width of its 95 % confidence interval; None for one task.
        num_tasks: that it was taken over.
    """

    mean: float
    interval: float | None
    num_tasks: int

    @property
    def is_decided(self) -> bool:
        """Whether chance alone does not explain it, at 95 %; few tasks cannot tell."""
        if self.interval is None or self.num_tasks < _FEWEST_TASKS:
            return False
        return abs(self.mean) > self.interval


def difference(found: Evaluation, other: Evaluation) -> Difference:
    """The first against the second.

    Args:
        found: of a model.
        other: of another, on the same tasks.

    Raises:
        ConfigError: their tasks are not the same.
    """
    for name in ("num_tasks", "split", "seed"):
        ours, theirs = getattr(found, name), getattr(other, name)
        if ours != theirs:
            raise ConfigError(
                f"only figures on the same tasks can be compared, but `{name}` is {ours} and "
                f"{theirs}."
            )
    if (found.accuracy is None) != (other.accuracy is None):
        raise ConfigError("an accuracy cannot be compared with a loss; compare runs of one kind.")
    for evaluation in (found, other):
        if len(evaluation.per_task) != evaluation.num_tasks:
            raise ConfigError(
                f"there are figures of {len(evaluation.per_task)} single tasks, but it takes all "
                f"{evaluation.num_tasks} to compare; evaluate the run again, as its result does "
                "not keep them."
            )
    ours, theirs = (torch.tensor(x.per_task, dtype=torch.float64) for x in (found, other))
    return Difference(*mean_and_interval(ours - theirs), found.num_tasks)
