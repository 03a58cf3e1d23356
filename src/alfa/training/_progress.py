"""Progress of a training, for display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Work(NamedTuple):
    """Work other than outer iterations, such as the tasks of a validation or a test."""

    what: str
    done: int
    total: int
    unit: str = "tasks"


@dataclass(frozen=True)
class Progress:
    """The progress of a training.

    Attributes:
        iteration: completed outer iterations.
        num_iterations: the total number of outer iterations.
        record: the new record of the metrics, after a validation.
        message: a message for the user.
        work: the current work other than outer iterations, if any.
    """

    iteration: int
    num_iterations: int
    record: dict[str, Any] | None = None
    message: str | None = None
    work: Work | None = None


OnProgress = Callable[[Progress], None]
