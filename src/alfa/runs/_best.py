"""The best epochs of a training, and the files of their models.

The trainer saves its state first and the best model afterwards. A process that is killed in between
leaves the model of an earlier epoch. A process that resumes from an older state may find the model
of a later epoch, which need not be the best again, because results vary slightly with the CPU's
rounding. `recover_best` makes ``best.safetensors`` consistent with the trainer state.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
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
    """The validation of one epoch.

    Attributes:
        iteration: the number of outer iterations before it.
        score: epochs are compared by it; larger is better.
        loss: the mean query loss.
        accuracy: None for regression.
    """

    iteration: int
    score: float
    loss: float
    accuracy: float | None = None


class TrainingProgress(BaseModel):
    """The trainer's part of a checkpoint, beside the tensors.

    Attributes:
        iteration: outer iterations done.
        validated: the last iteration that was validated.
        skipped: iterations and validations that were not finite.
        seconds: time spent in iterations.
        window: training losses since the last validation.
        stamps: modification stamps of the data files, on all machines.
        best: the best epochs.
        memory: how an iteration uses memory.
        memory_budget: the budget that `memory` was chosen for, in GB.
        schedule: the state of the learning-rate scheduler.
    """

    iteration: NonNegativeInt
    validated: int = -1
    skipped: NonNegativeInt = 0
    seconds: float = 0.0
    window: list[float] = []
    stamps: list[str] = []
    best: list[Epoch] = []
    memory: MemoryPlan | None = None
    memory_budget: PositiveFloat | None = None
    schedule: dict[str, Any] | None = None


@dataclass(frozen=True)
class Best:
    """The best epochs so far, the best first; of equals, the earlier one first.

    Attributes:
        epochs: as many as the ensemble has, or fewer.
    """

    epochs: tuple[Epoch, ...] = ()

    @property
    def iterations(self) -> list[int]:
        return [epoch.iteration for epoch in self.epochs]

    def with_epoch(self, new: Epoch, *, num_members: int) -> tuple[Best, bool]:
        """The best epochs including a new one, and whether the new one is the best."""
        # Sorting is stable, so of equals the earlier one stays ahead.
        ordered = sorted([*self.epochs, new], key=lambda epoch: -epoch.score)
        return Best(tuple(ordered[:num_members])), ordered[0] is new

    def as_progress(self) -> dict[str, Any]:
        return {"best": [asdict(epoch) for epoch in self.epochs]}

    @classmethod
    def from_progress(cls, progress: Mapping[str, Any]) -> Best:
        return cls(tuple(Epoch(**epoch) for epoch in progress["best"]))


def recover_best(last: Checkpoint, run: Run) -> Checkpoint:
    """Make ``best.safetensors`` consistent with a state to resume from.

    Returns:
        The state without the best models that are lost.

    Raises:
        CheckpointError: a model cannot be read, or belongs to another experiment.
    """
    best, total = Best.from_progress(last.progress), run.experiment.outer.num_iterations
    # After the last validation no other model can take its place: the test raises the error.
    is_over = last.progress["iteration"] == total == last.progress["validated"]
    lost = []
    while best.epochs and not _recover(best.iterations[0], last, run):
        if is_over:
            return last
        lost.append(best.iterations[0])
        best = Best(best.epochs[1:])
    if not lost:
        return last
    models = f"model{'s' if len(lost) > 1 else ''} of iteration {', '.join(map(str, lost))}"
    warnings.warn(
        f"the {models}, best in validation so far, is missing from {run.path}; alfa tests the next "
        "best.",
        AlfaWarning,
        stacklevel=2,
    )
    return replace(last, progress={**last.progress, **best.as_progress()})


def load_best(run: Run, *, iteration: int) -> Checkpoint:
    """The best model of a run, which must be that of `iteration`.

    Raises:
        CheckpointError: the file cannot be read, or holds the model of another iteration.
    """
    best = run.load_checkpoint("best")
    if (found := best.progress["iteration"]) != iteration:
        raise CheckpointError(
            f"{run.files.checkpoint('best')} is the model of iteration {found}, but the best one "
            f"in validation, of iteration {iteration}, is missing; train it again in another "
            "folder."
        )
    return best


def _recover(iteration: int, last: Checkpoint, run: Run) -> bool:
    """Store the model of an iteration as the best one; False if it is lost."""
    path = run.files.checkpoint("best")
    if last.progress["iteration"] == iteration:
        # Also if a file exists: it may be of the same iteration with other rounding.
        last.without_optimizer().save(path)
        return True
    best = _intact(path, run.fingerprint)
    if best is not None and best.progress["iteration"] == iteration:
        return True
    member = _intact(run.files.member(iteration), run.fingerprint)
    if member is not None:
        member.save(path)
    return member is not None


def _intact(path: Path, fingerprint: str) -> Checkpoint | None:
    """A checkpoint; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        return Checkpoint.load(path, fingerprint=fingerprint)
    except DamagedError:
        return None
