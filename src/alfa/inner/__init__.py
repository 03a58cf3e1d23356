"""The inner loop."""

from alfa.inner.budget import GB, MemoryPlan, plan_memory
from alfa.inner.learner import Learner, Outcome
from alfa.inner.loop import Adapted, adapt, check_batch_norm
from alfa.inner.memory import MemoryMode

__all__ = [
    "GB",
    "Adapted",
    "Learner",
    "MemoryMode",
    "MemoryPlan",
    "Outcome",
    "adapt",
    "check_batch_norm",
    "plan_memory",
]
