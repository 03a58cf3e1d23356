"""Optimizers and learning-rate schedules of the outer loop, by name."""

from alfa.optim._optimizers import OPTIMIZERS, Adam, OptimizerFactory, register_optimizer
from alfa.optim._pretraining import Pretraining
from alfa.optim._schedules import SCHEDULES, Schedule, register_schedule

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Adam",
    "OptimizerFactory",
    "Pretraining",
    "Schedule",
    "register_optimizer",
    "register_schedule",
]
