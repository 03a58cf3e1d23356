"""Statistics over runs that differ only in their seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from alfa.evaluation._evaluate import Evaluation, mean_and_interval


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

    Welch's t-test gives the interval without assuming equal variances. A single run on either side
    gives None.
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
    if first.accuracy is None:
        return replace(first, loss=mean, interval=interval)
    loss = statistics.fmean(one.loss for one in found)
    return replace(first, loss=loss, interval=None, accuracy=mean, accuracy_interval=interval)
