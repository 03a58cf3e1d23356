"""The first steps of every command that computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alfa import _runtime
from alfa.config import Experiment

if TYPE_CHECKING:
    from alfa.data import Tasks
    from alfa.learner import Learner
    from alfa.runs import Run


def set_up(experiment: Experiment, *, device: str, threads: int | None, share: int = 1) -> None:
    """Check the device, tune the process, and choose the number of CPU threads.

    `share` is the number of processes that share the machine.
    """
    check_device(device)
    _runtime.tune()
    # A perceptron's operations are smaller than the cost of sharing them.
    _runtime.set_threads(threads, small=experiment.model.name == "mlp", share=share)


def check_device(device: str) -> None:
    """Raise if this machine has no such device."""
    _runtime.check_device(device, name="--device")


def open_best(
    path: Path, dataset: str | None, size: int | None, **sizes: int | None
) -> tuple[Run, Learner, Tasks]:
    """Open a run, its best model, and tasks for it, by default the run's own.

    `size` is the prepared size of another dataset, and `sizes` are options such as `shot`.
    """
    from alfa.cli._tasks import task_changes
    from alfa.report.load import load_best
    from alfa.runs import Run

    run = Run.open(path)
    set_up(run.experiment, device="cpu", threads=None)
    is_own = size is None and dataset == run.experiment.tasks.options.get("dataset")
    other = None if is_own else dataset
    changes = task_changes(run, dataset=other, size=size, settings=None, **sizes)
    learner, tasks = load_best(run, changes)
    return run, learner, tasks
