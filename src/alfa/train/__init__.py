"""The outer loop, evaluation, and run folders."""

from alfa.train.checkpoint import Checkpoint
from alfa.train.evaluate import Evaluation, evaluate
from alfa.train.run import Run
from alfa.train.trainer import Progress, train

__all__ = ["Checkpoint", "Evaluation", "Progress", "Run", "evaluate", "train"]
