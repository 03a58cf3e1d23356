"""Completed runs, for figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.data import Tasks
from alfa.errors import CheckpointError
from alfa.learner import Learner
from alfa.models import disable_dropout
from alfa.runs import Run


@dataclass(frozen=True)
class TrainedRun:
    """A completed run, with its best model.

    Attributes:
        title: the name of the run in tables and figures.
        metrics: one record per validation.
        result: the content of ``result.json``.
        learner: the best model, see `load_best`.
        tasks: the run's tasks.
    """

    title: str
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    learner: Learner
    tasks: Tasks


def load_run(path: Path, title: str | None = None) -> TrainedRun:
    """Open a completed run.

    Raises:
        CheckpointError: the folder is not a run, or its training is not complete.
    """
    run = Run.open(path)
    if run.result is None:
        raise CheckpointError(
            f"{path} is not complete; resume it with `alfa train --resume {path}` first."
        )
    learner, tasks = load_best(run)
    return TrainedRun(title or path.name, run.metrics, run.result, learner, tasks)


def load_best(run: Run, overrides: Sequence[str] = ()) -> tuple[Learner, Tasks]:
    """The best model of a run as its test uses it, and tasks for it.

    The model takes as many steps as in the test, and dropout is off, so that a figure shows what
    the test measured.

    Args:
        run: the run, which need not be complete.
        overrides: changes to its tasks, such as ``"tasks.dataset=cub"``.
    """
    tasks, learner = run.tasks(overrides), run.learner("best")
    learner.num_steps = run.num_test_steps
    disable_dropout(learner.model)
    return learner, tasks
