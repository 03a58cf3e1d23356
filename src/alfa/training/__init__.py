"""The outer loop, and pretraining."""

from alfa.optim import Pretraining
from alfa.training._loop import Progress, Work
from alfa.training._outer_step import OuterStep, clip_gradient, trained_parameters
from alfa.training._pretrain import WEIGHTS, Epoch, pretrain, pretrain_run
from alfa.training._trainer import Trainer, train_run

__all__ = [
    "WEIGHTS",
    "Epoch",
    "OuterStep",
    "Pretraining",
    "Progress",
    "Trainer",
    "Work",
    "clip_gradient",
    "pretrain",
    "pretrain_run",
    "train_run",
    "trained_parameters",
]
