"""The status of cells and their measurements, read from run folders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from alfa._io import read_json
from alfa.errors import AlfaError, CheckpointError
from alfa.paper._job import Job
from alfa.paper._table import Cell
from alfa.runs import Run

# The required entries of a test on another dataset.
_TEST_KEYS = {"accuracy", "accuracy_interval", "num_tasks", "num_models", "num_iterations"}


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
class Measurement:
    """The figure of a cell from one seed.

    Attributes:
        value: the accuracy in percent, or the mean squared error.
        interval: half the width of the 95 % confidence interval over tasks.
        num_tasks: test tasks.
        num_models: models whose outputs were averaged.
        num_iterations: outer iterations.
        trains: the method has meta-parameters to train.
        seconds: the duration of the training.
        seed: the seed of the run.
        is_quick: the run only checks that everything works.
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


def cell_status(job: Job, cell: Cell) -> tuple[State, str]:
    """The state of a cell, and a note if there is more to say."""
    run = Run(job.path)
    if run.files.is_busy:
        return State.RUNNING, f"{job.path} is in use by another process"
    try:
        if not run.files.exists:
            return _failure(job.error_file()) or (State.NOT_RUN, "")
        state, note = training_status(job, run)
        if state != State.DONE or cell.test_dataset is None:
            return state, note
        if read_test(job.path, cell, run.result) is None:
            not_tested = (State.STOPPED, f"trained, but not tested on {cell.test_dataset}")
            return _failure(job.error_file(cell)) or not_tested
    except (AlfaError, OSError) as error:
        return State.DAMAGED, str(error).removesuffix(".")
    return State.DONE, ""


def is_done(job: Job) -> bool:
    return all(cell_status(job, cell)[0] == State.DONE for cell in job.cells)


def training_status(job: Job, run: Run) -> tuple[State, str]:
    """The state of a job's training in an existing run folder.

    Raises:
        AlfaError: the folder cannot be read.
    """
    if run.fingerprint != job.experiment.fingerprint():
        return State.DIFFERS, f"{job.path} holds another experiment; move it away to run the cell"
    if run.result is None:
        return _failure(job.error_file()) or (State.STOPPED, "")
    wanted = job.experiment.outer.num_iterations
    if not has_trained(run.result, wanted):
        return State.SHORTER, f"{run.result['num_iterations']:,} of {wanted:,} iterations"
    return State.DONE, ""


def has_trained(result: dict[str, Any], num_iterations: int) -> bool:
    """Whether a result has so many iterations, or there was nothing to train."""
    return not result["num_meta_parameters"] or result["num_iterations"] >= num_iterations


def measurement(job: Job, cell: Cell) -> Measurement | None:
    """The measurement of a cell, also if it was trained for less or longer than requested."""
    run = Run(job.path)
    try:
        if not run.files.exists or run.fingerprint != job.experiment.fingerprint():
            return None
        return measure(cell, run.result, path=job.path, is_quick=job.is_quick)
    except (AlfaError, OSError):
        return None


def measure(
    cell: Cell, result: dict[str, Any] | None, *, path: Path, is_quick: bool
) -> Measurement | None:
    """The measurement of a cell in the run folder `path`; None if its test is missing.

    Raises:
        CheckpointError: the test lacks the metric of the cell, or is damaged.
    """
    test = read_test(path, cell, result)
    if test is None or result is None:
        return None
    is_accuracy = cell.metric == "accuracy"
    names = ("accuracy", "accuracy_interval") if is_accuracy else ("loss", "interval")
    value, interval = (test.get(name) for name in names)
    if value is None:
        raise CheckpointError(f"{path} says nothing of its {cell.metric}; test it again.")
    scale = 100 if is_accuracy else 1
    return Measurement(
        value=scale * value,
        interval=None if interval is None else scale * interval,
        num_tasks=test["num_tasks"],
        num_models=test["num_models"],
        num_iterations=result["num_iterations"],
        trains=bool(result["num_meta_parameters"]),
        seconds=result["seconds"],
        seed=result["config"]["seed"],
        is_quick=is_quick,
        path=path,
    )


def read_test(path: Path, cell: Cell, result: dict[str, Any] | None) -> dict[str, Any] | None:
    """The test that measures a cell: part of the result, or a file for another dataset.

    None if there is no such file, or the model was trained further since.

    Raises:
        CheckpointError: the file is damaged.
    """
    if result is None:
        return None
    if cell.test_dataset is None:
        test: dict[str, Any] = result.get("ensemble") or result["test"]
        return test
    file = test_file(path, cell)
    content = read_json(file)
    if content is None:
        return None
    if not content.keys() >= _TEST_KEYS:
        raise CheckpointError(f"{file} is damaged; remove it to have it written again.")
    return content if content["num_iterations"] == result["num_iterations"] else None


def test_file(path: Path, cell: Cell) -> Path:
    return path / "tests" / f"{cell.test_dataset}.json"


def _failure(file: Path) -> tuple[State, str] | None:
    if not file.is_file():
        return None
    return State.FAILED, file.read_text(encoding="utf-8").partition("\n")[0].removesuffix(".")
