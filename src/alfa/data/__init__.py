"""Sources of few-shot tasks."""

from alfa.data._base import SPLITS, TASKS, Split, Tasks, register_tasks, task_rng
from alfa.data._sinusoids import Sine, Sinusoids

__all__ = [
    "SPLITS",
    "TASKS",
    "Sine",
    "Sinusoids",
    "Split",
    "Tasks",
    "register_tasks",
    "task_rng",
]
