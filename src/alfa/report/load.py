"""Completed runs, for figures and pages."""

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
    """A completed run with its best model."""

    title: str
    metrics: list[dict[str, Any]]  # one record per validation
    result: dict[str, Any]  # the content of result.json
    learner: Learner
    tasks: Tasks


def load_run(path: Path, title: str | None = None) -> TrainedRun:
    """Load a completed run; raise CheckpointError if the folder does not contain one."""
    run = Run.open(path)
    if run.result is None:
        raise CheckpointError(
            f"{path} is not complete; resume it with `alfa train --resume {path}` first."
        )
    learner, tasks = load_best(run)
    return TrainedRun(title or path.name, run.metrics, run.result, learner, tasks)


def load_best(run: Run, overrides: Sequence[str] = ()) -> tuple[Learner, Tasks]:
    """Load the best model of a run, configured as in its test, and its tasks.

    Figures show the tested model, so the learner takes the test's number of steps, and dropout is
    off. `overrides` change the tasks, for example ``"tasks.dataset=cub"``.
    """
    tasks, learner = run.tasks(overrides), run.learner("best")
    learner.num_steps = run.num_test_steps
    disable_dropout(learner.model)
    return learner, tasks
