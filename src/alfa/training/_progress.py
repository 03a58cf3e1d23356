"""How far a training is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Work(NamedTuple):
    """What is done beside the iterations, such as the tasks of a validation or a test."""

    what: str
    done: int
    total: int
    unit: str = "tasks"


@dataclass(frozen=True)
class Progress:
    """Where training stands, for whoever shows it.

    Attributes:
        iteration: outer iterations done.
        num_iterations: how many there will be.
        record: the newest line of the metrics, if one was written just now.
        message: something to tell the user.
        work: what is being done beside the iterations, if anything.
    """

    iteration: int
    num_iterations: int
    record: dict[str, Any] | None = None
    message: str | None = None
    work: Work | None = None


OnProgress = Callable[[Progress], None]
