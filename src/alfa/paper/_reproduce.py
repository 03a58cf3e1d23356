"""Running cells of the paper, one model after the other."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from alfa.config import Experiment
from alfa.errors import AlfaError, BusyError, CheckpointError, Stopped
from alfa.paper._job import MARK, MARK_IN_RESULT, PRETRAINING, QUICK_PRETRAINING, Job
from alfa.paper._state import State, has_trained, look, look_at_training, read_test
from alfa.train import (
    Epoch,
    Progress,
    Run,
    Work,
    judge,
    on_dataset,
    pretrain,
    train,
)
from alfa.train.files import write_atomic, write_json


@dataclass
class Outcome:
    """What became of jobs.

    Attributes:
        done: names of the jobs that are done now.
        skipped: names of those that were done before.
        busy: names of those that another process is running.
        failed: names of jobs, or of single cells, that failed, each with a sentence.
    """

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Take in what became of further jobs."""
        self.done += other.done
        self.skipped += other.skipped
        self.busy += other.busy
        self.failed |= other.failed


def reproduce(
    jobs: Sequence[Job],
    *,
    device: torch.device | str = "cpu",
    num_sharing: int = 1,
    before: Callable[[Job], None] = lambda job: None,
    after: Callable[[Job], None] = lambda job: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Job, Progress], None] = lambda job, progress: None,
) -> Outcome:
    """Train and test what is not done yet, and go on past what fails.

    A job that was stopped goes on where it was, and one that was trained for less than is asked
    for now is trained further.

    Args:
        jobs: what to run, in this order.
        device: where to compute.
        num_sharing: jobs that share the memory of this machine.
        before: called before each job that has something to do.
        after: called after each job, whatever became of it.
        should_stop: asked every now and then.
        on_progress: is told how far a job is.

    Raises:
        Stopped: `should_stop` said so; what was done is kept.
    """
    outcome = Outcome()
    for job in jobs:
        if should_stop():
            raise Stopped
        if all(look(job, cell)[0] == State.DONE for cell in job.cells):
            outcome.skipped.append(job.name)
            after(job)
            continue
        try:
            before(job)
            how = _How(job, device, num_sharing, should_stop, partial(on_progress, job))
            is_new, failed = _run(how)
        except BusyError:
            outcome.busy.append(job.name)
        # A night's work does not end because one model cannot be trained.
        except Exception as error:
            outcome.failed[job.name] = _sentence(error, job.error_file())
        else:
            outcome.failed |= failed
            if not failed:
                # Another process may have done it since it was looked at.
                (outcome.done if is_new else outcome.skipped).append(job.name)
        after(job)
    return outcome


@dataclass(frozen=True)
class _How:
    """A job, and how it is to be run."""

    job: Job
    device: torch.device | str
    num_sharing: int
    should_stop: Callable[[], bool]
    on_progress: Callable[[Progress], None]

    def tell(self, progress: Progress) -> None:
        self.on_progress(progress)
        if self.should_stop():
            raise Stopped


def _run(how: _How) -> tuple[bool, dict[str, str]]:
    """Train the model and test it for every cell.

    Returns:
        Whether there was something to do, and the cells whose tests failed, with a sentence.
    """
    job, run = how.job, Run(how.job.path)
    # One lock for all, so that nobody else does a part of it.
    with run.lock():
        result, is_new = _trained(how, run)
        failed = {}
        # Datasets that are not at hand have the same generated one in their place.
        known: dict[tuple[str, int | None], dict[str, Any]] = {}
        for cell in job.cells:
            if cell.judged_on is None:
                continue
            try:
                if read_test(job.path, cell, result) is None:
                    is_new = True
                    where = job.judged_on(cell)
                    if where not in known:
                        known[where] = _tested(how, where, result)
                    write_json(job.path / "tests" / f"{cell.judged_on}.json", known[where])
                job.error_file(cell).unlink(missing_ok=True)
            # A dataset that is not there does not keep from testing on the others.
            except Exception as error:
                failed[cell.id] = _noted(error, job.error_file(cell))
    return is_new, failed


def _trained(how: _How, run: Run) -> tuple[dict[str, Any], bool]:
    """The result of the training, and whether it had to be made."""
    job, result = how.job, None
    if run.exists:
        state, told = look_at_training(job)
        if state == State.DIFFERS:
            raise CheckpointError(f"{told}.")
        result = run.read_result()
    if result is not None and has_trained(result, job.experiment.outer.num_iterations):
        return result, False
    job.error_file().unlink(missing_ok=True)
    write_json(job.path / MARK, job.mark)
    try:
        _pretrained(how)
        result = train(
            _no_shorter(job, run),
            job.path,
            resume=run.exists,
            device=how.device,
            lock=False,
            num_sharing=how.num_sharing,
            extra={MARK_IN_RESULT: job.mark},
            should_stop=how.should_stop,
            on_progress=how.on_progress,
        )
    except BusyError:
        # Another job is making the backbone: nothing is wrong with this one.
        raise
    except Exception as error:
        _noted(error, job.error_file())
        raise
    return result, True


def _pretrained(how: _How) -> None:
    """Train the backbone that the model begins with, unless another job has done so."""
    job, folder = how.job, how.job.pretraining
    if folder is None:
        return

    def tell(done: int, total: int, epoch: Epoch | None) -> None:
        work = Work("pretraining", done, total, "batches")
        how.on_progress(Progress(0, job.experiment.outer.num_iterations, work=work))

    options = QUICK_PRETRAINING if job.is_quick else PRETRAINING
    # One backbone serves all seeds.
    experiment = job.experiment.model_copy(update={"seed": 0})
    pretrain(
        experiment,
        folder,
        options=options,
        device=how.device,
        should_stop=how.should_stop,
        on_progress=tell,
    )


def _no_shorter(job: Job, run: Run) -> Experiment:
    """The experiment; where a run that was stopped is further than is asked for, as far as that."""
    # Not the last validation: a run may have been stopped in the middle of an epoch.
    last = run.load_last(job.experiment) if run.exists else None
    outer, done = job.experiment.outer, 0 if last is None else last.progress["iteration"]
    if done <= outer.num_iterations:
        return job.experiment
    # To the end of that epoch, as one that never stopped would.
    whole = -(-done // outer.validate_every) * outer.validate_every
    outer = outer.model_copy(update={"num_iterations": whole})
    return job.experiment.model_copy(update={"outer": outer})


def _tested(how: _How, where: tuple[str, int | None], result: dict[str, Any]) -> dict[str, Any]:
    """What a test of the model on another dataset finds."""
    job, (dataset, size), count = how.job, where, result["num_iterations"]

    def on_tasks(done: int, total: int) -> None:
        how.tell(Progress(count, count, work=Work(f"testing on {dataset}", done, total)))

    found, _ = judge(
        Run(job.path),
        changes=on_dataset(dataset, size=size, tasks=job.experiment.tasks.name),
        checkpoint="ensemble",
        device=how.device,
        on_tasks=on_tasks,
    )
    return {**found.as_dict(), "dataset": dataset, "num_iterations": count}


def _noted(error: Exception, file: Path) -> str:
    """Keep what went wrong in the run folder, and say it in a sentence."""
    sentence = _sentence(error, file)
    details = "" if _is_known(error) else "".join(traceback.format_exception(error))
    # The sentence is told in any case.
    with contextlib.suppress(OSError):
        write_atomic(file, f"{sentence}\n{details}".encode())
    return sentence


def _sentence(error: Exception, file: Path) -> str:
    if _is_known(error):
        return " ".join(str(error).split())
    return f"{' '.join(repr(error).split())}; what happened is in {file}."


def _is_known(error: Exception) -> bool:
    return isinstance(error, AlfaError | OSError)
