"""Reading run folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.build import build_learner, build_tasks
from alfa.config import Experiment
from alfa.data import Tasks
from alfa.errors import CheckpointError
from alfa.inner import Learner
from alfa.train import Run


@dataclass(frozen=True)
class TrainedRun:
    """A completed run, with its best model.

    Attributes:
        title: what people call it.
        experiment: what was run.
        metrics: one record per validation.
        result: the content of ``result.json``.
        learner: as it was best in validation.
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
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    run.load_checkpoint("best", experiment).restore(learner)
    return TrainedRun(
        title=title or path.name,
        experiment=experiment,
        metrics=run.read_metrics(),
        result=result,
        learner=learner,
        tasks=tasks,
    )
