"""Running cells of the paper, one model after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from alfa.errors import AlfaError, BusyError, CheckpointError
from alfa.paper._base import Cell
from alfa.paper._job import MARK, Job
from alfa.paper._state import ERROR, State, has_trained, look, read_test
from alfa.train import Progress, Run, Work, judge, on_dataset, train
from alfa.train.files import write_atomic, write_json


@dataclass
class Outcome:
    """What became of jobs.

    Attributes:
        done: names of the jobs that are done now.
        skipped: names of those that were done before.
        busy: names of those that another process is running.
        failed: names of those that failed, each with a sentence.
    """

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def reproduce(
    jobs: Sequence[Job],
    *,
    device: torch.device | str = "cpu",
    before: Callable[[Job], None] = lambda job: None,
    on_progress: Callable[[Job, Progress], None] = lambda job, progress: None,
) -> Outcome:
    """Train and test what is not done yet, and go on past what fails.

    A job that was stopped goes on where it was, and one that was trained for less than is asked
    for now is trained further.

    Args:
        jobs: what to run, in this order.
        device: where to compute.
        before: called before each job that has something to do.
        on_progress: is told how far a job is.
    """
    outcome = Outcome()
    for job in jobs:
        looks = [look(job, cell) for cell in job.cells]
        if all(state == State.DONE for state, _ in looks):
            outcome.skipped.append(job.name)
            continue
        try:
            for state, told in looks:
                if state in (State.DIFFERS, State.DAMAGED):
                    raise CheckpointError(f"{told}.")
            before(job)
            _run(job, device, partial(on_progress, job))
            outcome.done.append(job.name)
        except BusyError:
            outcome.busy.append(job.name)
        # A night's work does not end because one model cannot be trained.
        except Exception as error:
            outcome.failed[job.name] = _note(job, error)
    return outcome


def _run(job: Job, device: torch.device | str, on_progress: Callable[[Progress], None]) -> None:
    run = Run(job.path)
    result = run.read_result() if run.exists else None
    if result is None or not has_trained(result, job.experiment.outer.num_iterations):
        resume = run.exists
        result = train(
            job.experiment, job.path, resume=resume, device=device, on_progress=on_progress
        )
    with run.lock():
        write_json(job.path / MARK, {"run": job.run, "is_quick": job.is_quick})
        for cell in job.cells:
            if cell.judged_on is not None and read_test(job, cell, result) is None:
                _test_elsewhere(job, cell, result, device, on_progress)
        (job.path / ERROR).unlink(missing_ok=True)


def _test_elsewhere(
    job: Job,
    cell: Cell,
    result: dict[str, Any],
    device: torch.device | str,
    on_progress: Callable[[Progress], None],
) -> None:
    path, dataset = job.test_file(cell), job.judged_on(cell)
    assert path is not None
    assert dataset is not None
    count = result["num_iterations"]

    def on_tasks(done: int, total: int) -> None:
        on_progress(Progress(count, count, work=Work(f"testing on {dataset}", done, total)))

    found, _ = judge(
        Run(job.path),
        changes=on_dataset(dataset),
        checkpoint="ensemble",
        device=device,
        on_tasks=on_tasks,
    )
    path.parent.mkdir(exist_ok=True)
    write_json(path, {**found.as_dict(), "dataset": dataset, "num_iterations": count})


def _note(job: Job, error: Exception) -> str:
    """Keep what went wrong in the run folder, and say it in a sentence."""
    known = isinstance(error, AlfaError | OSError)
    sentence = " ".join((str(error) if known else repr(error)).split())
    details = "" if known else "".join(traceback.format_exception(error))
    try:
        job.path.mkdir(parents=True, exist_ok=True)
        write_atomic(job.path / ERROR, f"{sentence}\n{details}".encode())
    except OSError:
        pass  # The sentence is told in any case.
    return sentence
