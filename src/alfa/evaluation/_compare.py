"""Statistics over tasks and over seeds: differences between models, means, and intervals."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from alfa.errors import ConfigError
from alfa.evaluation._evaluate import Evaluation, mean_and_interval


@dataclass(frozen=True)
class Difference:
    """The difference between two models in the figure that decides.

    This is the metric of the tasks, or else the accuracy, or the loss for regression.

    Attributes:
        mean: the mean over tasks; positive if the first model has the higher value.
        interval: half the width of the 95 % confidence interval of `mean`; None for one task.
        num_tasks: number of tasks.
        fewest_tasks: number of tasks from which a difference can be significant.
    """

    mean: float
    interval: float | None
    num_tasks: int
    # The normal approximation of the interval is too narrow for fewer tasks.
    fewest_tasks: ClassVar[int] = 30

    @property
    def is_decided(self) -> bool:
        """Whether the difference is significant at the 95 % level."""
        is_large = self.interval is not None and abs(self.mean) > self.interval
        return is_large and self.num_tasks >= self.fewest_tasks


def difference(found: Evaluation, other: Evaluation) -> Difference:
    """Return the paired difference between two evaluations on the same tasks.

    Tasks differ in difficulty far more than models do. A paired difference removes this variation,
    so its interval is narrower than the two separate intervals suggest. Evaluations on different
    tasks, or without `per_task`, raise a ConfigError.
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
    """
    _check_comparable(found, other)
    ours, theirs = found.figure, other.figure
    has_interval = ours.interval is not None and theirs.interval is not None
    interval = math.hypot(ours.interval, theirs.interval) if has_interval else None  # type: ignore[arg-type]
    return Difference(ours.value - theirs.value, interval, found.num_tasks)


def _check_comparable(found: Evaluation, other: Evaluation) -> None:
    for name in ("num_tasks", "split", "seed"):
        ours, theirs = getattr(found, name), getattr(other, name)
        if ours != theirs:
            raise ConfigError(
                f"only results on the same tasks can be compared, but `{name}` is {ours} and "
                f"{theirs}."
            )
    names = found.figure.name, other.figure.name
    if names[0] != names[1]:
        raise ConfigError(
            f"the {names[0]} of one model cannot be compared with the {names[1]} of another; "
            "evaluate them on the same tasks."
        )


@dataclass(frozen=True)
class SeedStatistics:
    """Statistics of a metric over seeds.

    Attributes:
        mean: the mean over runs.
        std: the sample standard deviation over runs; None for one run.
        interval: half the width of the 95 % confidence interval of the mean, by Student's t
            distribution; None for one run.
        num_runs: the number of runs.
    """

    mean: float
    std: float | None
    interval: float | None
    num_runs: int


def seed_statistics(values: Sequence[float]) -> SeedStatistics:
    """Return the statistics of a metric over runs with different seeds."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return SeedStatistics(mean, None, None, count)
    std = statistics.stdev(values)
    return SeedStatistics(mean, std, _quantile(count - 1) * std / math.sqrt(count), count)


def seed_difference_interval(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of the difference of two means over seeds.

    The interval is from Welch's t-test; a single run on either side gives None.
    """
    if len(first) < 2 or len(second) < 2:
        return None
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    if total == 0:
        return 0.0
    sizes = len(first) - 1, len(second) - 1
    freedom = total**2 / sum(part**2 / size for part, size in zip(parts, sizes, strict=True))
    return _quantile(freedom) * math.sqrt(total)


def _quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def mean_over_seeds(found: Sequence[Evaluation]) -> Evaluation:
    """Average the evaluations of runs on the same tasks, task by task.

    The interval is over tasks, of the mean over runs. A classifier's loss has no interval, because
    evaluations do not store its losses on single tasks.
    """
    if len(found) == 1:
        return found[0]
    per_task = torch.tensor([one.per_task for one in found], dtype=torch.float64).mean(dim=0)
    mean, interval = mean_and_interval(per_task)
    first = replace(found[0], per_task=tuple(per_task.tolist()))
    loss = statistics.fmean(one.loss for one in found)
    if first.metric is not None:
        return replace(first, loss=loss, interval=None, metric=mean, metric_interval=interval)
    if first.accuracy is None:
        return replace(first, loss=mean, interval=interval)
    return replace(first, loss=loss, interval=None, accuracy=mean, accuracy_interval=interval)
