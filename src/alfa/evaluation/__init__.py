"""Evaluation and comparison of learners."""

from alfa.evaluation._compare import (
    Difference,
    SeedStatistics,
    difference,
    mean_over_seeds,
    seed_difference_interval,
    seed_statistics,
)
from alfa.evaluation._evaluate import (
    ADVICE,
    Evaluation,
    Figure,
    check_finite,
    deciding_figure,
    evaluate,
    mean_and_interval,
    seeded,
    stack_size,
    without_dropout,
)
from alfa.evaluation._evaluate_run import average_ranks, evaluate_once, evaluate_run, ranks
from alfa.evaluation._memory_probe import MemoryProbe

__all__ = [
    "MemoryProbe",
    "evaluate_run",
    "ADVICE",
    "Difference",
    "Evaluation",
    "Figure",
    "average_ranks",
    "check_finite",
    "deciding_figure",
    "difference",
    "evaluate",
    "evaluate_once",
    "mean_and_interval",
    "ranks",
    "SeedStatistics",
    "mean_over_seeds",
    "seed_difference_interval",
    "seed_statistics",
    "seeded",
    "stack_size",
    "without_dropout",
]
