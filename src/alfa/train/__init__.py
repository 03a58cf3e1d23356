"""The outer loop, evaluation, and run folders."""

from alfa.train.checkpoint import Checkpoint
from alfa.train.compare import Difference, difference
from alfa.train.evaluate import Evaluation, evaluate, judged_tasks
from alfa.train.judge import judge, on_dataset, reopen
from alfa.train.run import Run
from alfa.train.trainer import Progress, Work, train

__all__ = [
    "Checkpoint",
    "Difference",
    "Evaluation",
    "Progress",
    "Run",
    "Work",
    "difference",
    "evaluate",
    "judge",
    "judged_tasks",
    "on_dataset",
    "reopen",
    "train",
]
