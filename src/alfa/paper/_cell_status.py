"""The status of cells and their measurements, read from run folders."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from alfa._io import read_json
from alfa.errors import AlfaError, CheckpointError
from alfa.paper._job import Job
from alfa.paper._table import Cell
from alfa.runs import Run

# Required entries of a test on another dataset.
_TEST_KEYS = {"accuracy", "accuracy_interval", "num_tasks", "num_models", "num_iterations"}


class State(StrEnum):
    """The progress of a cell with one seed."""

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
    """The figure of a cell from one seed."""

    value: float  # the accuracy in percent, or the mean squared error
    interval: float | None  # half the width of the 95 % confidence interval over tasks
    num_tasks: int  # test tasks
    num_models: int  # models whose outputs were averaged
    num_iterations: int  # outer iterations
    trains: bool  # the method has meta-parameters
    seconds: float  # duration of the training
    seed: int
    is_quick: bool  # the run only checks that everything works
    path: Path  # the run folder


def cell_status(job: Job, cell: Cell) -> tuple[State, str]:
    """Return the state of a cell, and a note that explains it."""
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
    """Return the state of a job's training in an existing run folder, and a note."""
    if run.fingerprint != job.experiment.fingerprint():
        note = f"{job.path} contains another experiment; move the folder to run the cell"
        return State.DIFFERS, note
    if run.result is None:
        return _failure(job.error_file()) or (State.STOPPED, "")
    wanted = job.experiment.outer.num_iterations
    if not has_trained(run.result, wanted):
        return State.SHORTER, f"{run.result['num_iterations']:,} of {wanted:,} iterations"
    return State.DONE, ""


def has_trained(result: dict[str, Any], num_iterations: int) -> bool:
    """Return whether a run reached a number of iterations, or had nothing to train."""
    return not result["num_meta_parameters"] or result["num_iterations"] >= num_iterations


def measurement(job: Job, cell: Cell) -> Measurement | None:
    """Return the measurement of a cell, whatever its number of iterations, or None."""
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
    """Return the measurement of a cell in a run folder, or None if its test is missing.

    Raises CheckpointError if the test lacks the metric of the cell, or is damaged.
    """
    test = read_test(path, cell, result)
    if test is None or result is None:
        return None
    is_accuracy = cell.metric == "accuracy"
    names = ("accuracy", "accuracy_interval") if is_accuracy else ("loss", "interval")
    value, interval = (test.get(name) for name in names)
    if value is None:
        raise CheckpointError(f"{path} has no test {cell.metric}; evaluate the run again.")
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
    """Read the test that measures a cell from the result, or from a file for another dataset.

    Returns None if the file is missing, or older than the result. Raises CheckpointError if it is
    damaged.
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
        raise CheckpointError(f"{file} is damaged; remove the file to repeat the test.")
    return content if content["num_iterations"] == result["num_iterations"] else None


def test_file(path: Path, cell: Cell) -> Path:
    return path / "tests" / f"{cell.test_dataset}.json"


def _failure(file: Path) -> tuple[State, str] | None:
    if not file.is_file():
        return None
    return State.FAILED, file.read_text(encoding="utf-8").partition("\n")[0].removesuffix(".")
