"""The progress of a training, its best epochs, and the files of their models.

The trainer saves its state first and the best model afterwards. A process that is killed in between
leaves the model of an earlier epoch. A process that resumes from an older state may find the model
of a later epoch, which need not be the best again, because results vary slightly with the CPU's
rounding. `recover_best` makes ``best.safetensors`` consistent with the trainer state.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, NonNegativeInt

from alfa.errors import AlfaWarning, CheckpointError, DamagedError
from alfa.learner import MemoryPlan
from alfa.runs._checkpoint import Checkpoint
from alfa.types import PositiveFloat

if TYPE_CHECKING:
    from alfa.runs._run import Run


@dataclass(frozen=True)
class Epoch:
    """The validation of one epoch."""

    iteration: int  # outer iterations before the validation
    score: float  # larger is better
    loss: float  # mean over query sets
    accuracy: float | None = None  # None for regression
    metric: float | None = None  # None unless the tasks define one


class TrainingProgress(BaseModel):
    """The trainer's part of a checkpoint, without the tensors."""

    iteration: NonNegativeInt  # completed outer iterations
    validated: int = -1  # the last iteration that was validated
    skipped: NonNegativeInt = 0  # iterations and validations
    seconds: float = 0.0  # time spent in iterations
    window: list[float] = []  # training losses since the last validation
    stamps: list[str] = []  # modification stamps of the data files, on all machines
    best: list[Epoch] = []  # the best first; the earlier of two equal epochs comes first
    memory: MemoryPlan | None = None  # how an iteration uses memory
    memory_budget: PositiveFloat | None = None  # the budget that `memory` was chosen for, in GB
    schedule: dict[str, Any] | None = None  # the state of the learning-rate scheduler

    @property
    def best_iterations(self) -> list[int]:
        return [epoch.iteration for epoch in self.best]

    def add_epoch(self, epoch: Epoch, *, num_members: int) -> bool:
        """Add an epoch if it is one of the best `num_members`; return True if it is the best."""
        # Sorting is stable, so the earlier of two equal epochs stays ahead.
        ordered = sorted([*self.best, epoch], key=lambda known: -known.score)
        self.best = ordered[:num_members]
        return ordered[0] is epoch


def recover_best(last: Checkpoint, run: Run) -> Checkpoint:
    """Make ``best.safetensors`` consistent with a state; return the state without lost models."""
    best, total = list(last.progress["best"]), run.experiment.outer.num_iterations
    lost = []
    while best and not _recover(best[0]["iteration"], last, run):
        if last.progress["iteration"] == total == last.progress["validated"]:
            # After the last validation, no other model can replace it.
            load_best(run, iteration=best[0]["iteration"])
        lost.append(best.pop(0)["iteration"])
    if not lost:
        return last
    models = f"model{'s' if len(lost) > 1 else ''} of iteration {', '.join(map(str, lost))}"
    warnings.warn(
        f"the {models}, best in validation so far, is missing from {run.path}; alfa tests the next "
        "best.",
        AlfaWarning,
        stacklevel=2,
    )
    return replace(last, progress={**last.progress, "best": best})


def load_best(run: Run, *, iteration: int) -> Checkpoint:
    """Load the best model of a run, and raise a CheckpointError unless it is of `iteration`."""
    best = run.load_checkpoint("best")
    if (found := best.progress["iteration"]) != iteration:
        raise CheckpointError(
            f"{run.files.checkpoint('best')} is the model of iteration {found}, but the best one "
            f"in validation, of iteration {iteration}, is missing; train it again in another "
            "folder."
        )
    return best


def _recover(iteration: int, last: Checkpoint, run: Run) -> bool:
    """Store the model of an iteration as the best one; return False if it is lost."""
    path = run.files.checkpoint("best")
    if last.progress["iteration"] == iteration:
        # Replace an existing file, too: its model may differ in rounding.
        last.without_optimizer().save(path)
        return True
    for source in filter(Path.is_file, [path, run.files.member(iteration)]):
        with contextlib.suppress(DamagedError):
            found = Checkpoint.load(source, fingerprint=run.fingerprint)
            if found.progress["iteration"] == iteration:
                if source != path:
                    found.save(path)
                return True
    return False
