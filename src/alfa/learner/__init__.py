"""The inner loop."""

from alfa.learner._budget import GB, MemoryPlan, plan_memory
from alfa.learner._learner import Learner, Outcome
from alfa.learner._loop import Adapted, adapt, check_batch_norm, steps
from alfa.learner._memory import RandomState

__all__ = [
    "Adapted",
    "GB",
    "Learner",
    "MemoryPlan",
    "Outcome",
    "RandomState",
    "adapt",
    "check_batch_norm",
    "plan_memory",
    "steps",
]
