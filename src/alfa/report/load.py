"""Reading run folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.config import Experiment
from alfa.data import Tasks
from alfa.errors import CheckpointError
from alfa.inner import Learner
from alfa.models import switch_off_dropout
from alfa.train import Run, on_dataset, reopen


@dataclass(frozen=True)
class TrainedRun:
    """A completed run, with its best model.

    Attributes:
        title: what people call it.
        experiment: what was run.
        metrics: one record per validation.
        result: the content of ``result.json``.
        learner: as it was best in validation and is tested, see `load_best`.
        tasks: where its tasks come from.
    """

    title: str
    experiment: Experiment
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    learner: Learner
    tasks: Tasks


def load_run(path: Path, title: str | None = None) -> TrainedRun:
    """Open a completed run.

    Raises:
        CheckpointError: the folder is not a run, or its training is not complete.
    """
    run = Run(path)
    experiment = run.experiment()
    result = run.read_result()
    if result is None:
        raise CheckpointError(
            f"{path} is not complete; go on with `alfa train --resume {path}` first."
        )
    learner, tasks = load_best(run, experiment)
    return TrainedRun(
        title=title or path.name,
        experiment=experiment,
        metrics=run.read_metrics(),
        result=result,
        learner=learner,
        tasks=tasks,
    )


def load_best(
    run: Run, experiment: Experiment, *, dataset: str | None = None, size: int | None = None
) -> tuple[Learner, Tasks]:
    """The best model of a run as its test takes it, and tasks for it.

    It has as many steps as in the test, and dropout is off, so that a picture shows what the test
    has measured.

    Args:
        run: the run, which need not be complete.
        experiment: of the run.
        dataset: that the tasks come from, if not the run's own.
        size: in which that is prepared, if in several.
    """
    tasks_of = experiment.tasks.name
    changes = [] if dataset is None else on_dataset(dataset, size=size, tasks=tasks_of)
    learner, tasks, _ = reopen(run, changes)
    run.load_checkpoint("best", experiment).restore(learner)
    learner.num_steps = experiment.inner.num_test_steps or learner.num_steps
    # Nobody trains it any further.
    switch_off_dropout(learner.model)
    return learner, tasks
