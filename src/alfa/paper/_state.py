"""How far a cell is, and what was measured for it: read from run folders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from alfa.errors import AlfaError, CheckpointError
from alfa.paper._base import Cell
from alfa.paper._job import Job
from alfa.train import Run

# Hidden, so that the folder still counts as empty.
ERROR = ".error.txt"


class State(StrEnum):
    """How far a cell is, from one seed."""

    NOT_RUN = "not run"
    RUNNING = "running"
    STOPPED = "stopped"
    SHORTER = "shorter"
    DONE = "done"
    DIFFERS = "differs"
    DAMAGED = "damaged"
    FAILED = "failed"
    MISSING = "cannot be run yet"


@dataclass(frozen=True)
class Measured:
    """What was measured for a cell, from one seed.

    Attributes:
        value: the accuracy in percent, or the mean squared error.
        interval: half of the 95 % interval over tasks.
        num_tasks: in the test.
        num_models: whose outputs were averaged.
        num_iterations: of training.
        trains: there is something to train.
        seconds: of training.
        seed: of everything.
        is_quick: it shows that everything runs, and says nothing about the method.
        path: the run folder.
    """

    value: float
    interval: float | None
    num_tasks: int
    num_models: int
    num_iterations: int
    trains: bool
    seconds: float
    seed: int
    is_quick: bool
    path: Path


def look(job: Job, cell: Cell) -> tuple[State, str]:
    """How far a cell is, and a sentence where there is more to say."""
    run = Run(job.path)
    if run.is_busy:
        return State.RUNNING, f"{job.path} is in use by another process"
    if not run.exists:
        return _failed(job) or (State.NOT_RUN, "")
    try:
        stored = run.experiment()
        result = run.read_result()
        test = read_test(job, cell, result)
    except AlfaError as error:
        return State.DAMAGED, str(error).removesuffix(".")
    if stored.fingerprint() != job.experiment.fingerprint():
        return State.DIFFERS, f"{job.path} holds another experiment; move it away to run the cell"
    if result is None:
        return _failed(job) or (State.STOPPED, "")
    if not has_trained(result, job.experiment.outer.num_iterations):
        done = result["num_iterations"]
        return State.SHORTER, f"{done:,} of {job.experiment.outer.num_iterations:,} iterations"
    if cell.judged_on is not None and test is None:
        return _failed(job) or (State.STOPPED, f"trained, but not tested on {cell.judged_on}")
    return State.DONE, ""


def has_trained(result: dict[str, Any], num_iterations: int) -> bool:
    """Whether a result is that of so many iterations; some runs have nothing to train."""
    return not result["num_meta_parameters"] or result["num_iterations"] >= num_iterations


def measured(job: Job, cell: Cell) -> Measured | None:
    """What was measured, also where it was trained for less or longer than asked."""
    run = Run(job.path)
    try:
        result = run.read_result() if run.exists else None
        if result is None or run.experiment().fingerprint() != job.experiment.fingerprint():
            return None
        other = read_test(job, cell, result)
    except AlfaError:
        return None
    test = other if cell.judged_on is not None else result.get("ensemble", result["test"])
    if test is None:
        return None
    return measure(cell, result, test, path=job.path, is_quick=job.is_quick)


def measure(
    cell: Cell, result: dict[str, Any], test: dict[str, Any], *, path: Path, is_quick: bool
) -> Measured:
    """What a result says of a cell.

    Args:
        cell: that is measured.
        result: of the run.
        test: the part of it, or the other test, that measures the cell.
        path: the run folder.
        is_quick: it shows that everything runs, and says nothing about the method.
    """
    accuracy = cell.metric == "accuracy"
    names = ("accuracy", "accuracy_interval") if accuracy else ("loss", "interval")
    value, interval = (test[name] for name in names)
    scale = 100 if accuracy else 1
    return Measured(
        value=scale * value,
        interval=None if interval is None else scale * interval,
        num_tasks=test["num_tasks"],
        num_models=test.get("num_models", 1),
        num_iterations=result["num_iterations"],
        trains=bool(result["num_meta_parameters"]),
        seconds=result["seconds"],
        seed=result["config"]["seed"],
        is_quick=is_quick,
        path=path,
    )


def read_test(job: Job, cell: Cell, result: dict[str, Any] | None) -> dict[str, Any] | None:
    """The test of a trained model on another dataset, unless it was trained further since."""
    path = job.test_file(cell)
    if path is None or not path.is_file() or result is None:
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        raise CheckpointError(f"{path} is damaged; remove it to have it written again.") from None
    return content if content["num_iterations"] == result["num_iterations"] else None


def _failed(job: Job) -> tuple[State, str] | None:
    path = job.path / ERROR
    return (State.FAILED, path.read_text().splitlines()[0]) if path.is_file() else None
