"""The best model of a run: that the file which is tested is the one that the state knows.

The state is kept first, then the model. Whoever is killed in between leaves the model of an earlier
epoch, and whoever goes on from an older state may find that of a later one, which need not be the
best again: on another machine sums round otherwise.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from alfa.config import Experiment
from alfa.errors import AlfaWarning, CheckpointError, DamagedError
from alfa.train.best import Best
from alfa.train.checkpoint import Checkpoint
from alfa.train.run import Run


def with_kept_best(last: Checkpoint, *, run: Run, experiment: Experiment) -> Checkpoint:
    """A state to go on from, without those of its best models that are lost.

    Args:
        last: the state.
        run: that it belongs to; its best model is put right.
        experiment: of this run.

    Raises:
        CheckpointError: a model may not be read, or is of another experiment.
    """
    best, total = Best.from_progress(last.progress), experiment.outer.num_iterations
    # Where nothing is validated any more, nothing would take its place: the test says so.
    is_over = last.progress["iteration"] == total == last.progress.get("validated", total)
    lost = []
    while best.epochs and not _recover(best.iterations[0], last, run=run, experiment=experiment):
        if is_over:
            return last
        lost.append(best.iterations[0])
        best = Best(best.epochs[1:])
    if not lost:
        return last
    models = f"model{'s' if len(lost) > 1 else ''} of iteration {', '.join(map(str, lost))}"
    warnings.warn(
        f"the {models}, best in validation so far, cannot be found in {run.path} any more; the "
        "best of the others is tested.",
        AlfaWarning,
        stacklevel=2,
    )
    return replace(last, progress={**last.progress, **best.as_progress()})


def load_best(run: Run, experiment: Experiment, *, iteration: int) -> Checkpoint:
    """The best model of a run, to be tested.

    Args:
        run: whose model it is.
        experiment: of this run.
        iteration: which it is of.

    Raises:
        CheckpointError: it cannot be read, or is another one.
    """
    best = run.load_checkpoint("best", experiment)
    if (found := best.progress.get("iteration", iteration)) != iteration:
        raise CheckpointError(
            f"{run.checkpoint('best')} is the model of iteration {found}, but the best one in "
            f"validation, of iteration {iteration}, was not kept; train it again in another folder."
        )
    return best


def _recover(iteration: int, last: Checkpoint, *, run: Run, experiment: Experiment) -> bool:
    """Make sure that the model of an iteration is kept as the best one; False if it is lost."""
    if last.progress["iteration"] == iteration:
        # Also where there is one: it may be of the same iteration by other sums.
        last.without_optimizer().save(run.checkpoint("best"))
        return True
    best = _whole(run.checkpoint("best"), experiment)
    if best is not None and best.progress.get("iteration", iteration) == iteration:
        return True
    member = _whole(run.member(iteration), experiment)
    if member is not None:
        member.save(run.checkpoint("best"))
    return member is not None


def _whole(path: Path, experiment: Experiment) -> Checkpoint | None:
    """A checkpoint; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        return Checkpoint.load(path, fingerprint=experiment.fingerprint())
    except DamagedError:
        return None
