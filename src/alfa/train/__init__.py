"""The outer loop, evaluation, and run folders."""

from alfa.train.checkpoint import Checkpoint
from alfa.train.evaluate import Evaluation, evaluate, judged_tasks
from alfa.train.run import Run
from alfa.train.trainer import Progress, Work, train

__all__ = [
    "Checkpoint",
    "Evaluation",
    "Progress",
    "Run",
    "Work",
    "evaluate",
    "judged_tasks",
    "train",
]
