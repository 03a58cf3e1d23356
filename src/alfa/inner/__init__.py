"""The inner loop."""

from alfa.inner.learner import Learner, Outcome
from alfa.inner.loop import Adapted, adapt

__all__ = ["Adapted", "Learner", "Outcome", "adapt"]
