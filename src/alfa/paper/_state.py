"""How far a cell is, and what was measured for it: read from run folders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from alfa.errors import AlfaError, CheckpointError
from alfa.paper._base import Cell
from alfa.paper._job import Job
from alfa.train import Run
from alfa.train.files import read_json

# What every test of a trained model on another dataset has.
_TEST_KEYS = {"accuracy", "accuracy_interval", "num_tasks", "num_iterations"}


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
    """How far a cell is, and a few words where there is more to say."""
    run = Run(job.path)
    if run.is_busy:
        return State.RUNNING, f"{job.path} is in use by another process"
    try:
        if not run.exists:
            return _failed(job.error_file()) or (State.NOT_RUN, "")
        state, told = look_at_training(job)
        if state != State.DONE or cell.judged_on is None:
            return state, told
        if read_test(job.path, cell, run.read_result()) is None:
            not_tested = (State.STOPPED, f"trained, but not tested on {cell.judged_on}")
            return _failed(job.error_file(cell)) or not_tested
    except (AlfaError, OSError) as error:
        return State.DAMAGED, str(error).removesuffix(".")
    return State.DONE, ""


def look_at_training(job: Job) -> tuple[State, str]:
    """How far the model of a job is, whose folder is there.

    Raises:
        AlfaError: the folder cannot be read.
    """
    run = Run(job.path)
    if run.experiment().fingerprint() != job.experiment.fingerprint():
        return State.DIFFERS, f"{job.path} holds another experiment; move it away to run the cell"
    result = run.read_result()
    if result is None:
        return _failed(job.error_file()) or (State.STOPPED, "")
    if not has_trained(result, job.experiment.outer.num_iterations):
        done = result["num_iterations"]
        return State.SHORTER, f"{done:,} of {job.experiment.outer.num_iterations:,} iterations"
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
        test = test_of(job.path, cell, result)
    except (AlfaError, OSError):
        return None
    if test is None:
        return None
    return measure(cell, result, test, path=job.path, is_quick=job.is_quick)


def test_of(path: Path, cell: Cell, result: dict[str, Any]) -> dict[str, Any] | None:
    """What measures a cell: a part of the result, or a test on another dataset."""
    if cell.judged_on is not None:
        return read_test(path, cell, result)
    found: dict[str, Any] = result.get("ensemble", result["test"])
    return found


def read_test(path: Path, cell: Cell, result: dict[str, Any] | None) -> dict[str, Any] | None:
    """The test of a model on another dataset, unless it was trained further since.

    Raises:
        CheckpointError: there is a file, but it is none of ours.
    """
    if cell.judged_on is None or result is None:
        return None
    file = path / "tests" / f"{cell.judged_on}.json"
    content = read_json(file)
    if content is None:
        return None
    if not content.keys() >= _TEST_KEYS:
        raise CheckpointError(f"{file} is damaged; remove it to have it written again.")
    return content if content["num_iterations"] == result["num_iterations"] else None


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

    Raises:
        CheckpointError: it does not say how good the run is.
    """
    accuracy = cell.metric == "accuracy"
    names = ("accuracy", "accuracy_interval") if accuracy else ("loss", "interval")
    value, interval = (test.get(name) for name in names)
    if value is None:
        raise CheckpointError(f"{path} says nothing of its {cell.metric}; test it again.")
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


def _failed(file: Path) -> tuple[State, str] | None:
    if not file.is_file():
        return None
    return State.FAILED, file.read_text(encoding="utf-8").partition("\n")[0].removesuffix(".")
