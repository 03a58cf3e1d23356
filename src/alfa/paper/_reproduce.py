"""Runs cells of the paper, one model after the other."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from alfa._io import write_atomic, write_json
from alfa.config import Experiment
from alfa.errors import AlfaError, BusyError, CheckpointError, Stopped
from alfa.evaluation import evaluate_run
from alfa.paper._cell_status import (
    State,
    has_trained,
    is_done,
    read_test,
    test_file,
    training_status,
)
from alfa.paper._job import PRETRAINING, QUICK_PRETRAINING, RESULT_KEY, Job
from alfa.runs import Run
from alfa.training import Epoch, Progress, Work, pretrain_run, train_run


@dataclass
class JobResult:
    """The outcome of jobs.

    Attributes:
        done: names of the jobs that were run.
        skipped: names of the jobs that were done before.
        busy: names of the jobs that another process is running.
        failed: an error message for each job, or single cell, that failed.
    """

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, other: JobResult) -> None:
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
) -> JobResult:
    """Train and test the jobs that are not done yet; a failure does not stop the others.

    A stopped job is resumed, and a job that was trained for fewer iterations is trained further.

    Args:
        jobs: the jobs, in this order.
        device: where to compute.
        num_sharing: jobs that share the memory of this machine.
        before: called before each job that is not done.
        after: called after each job.
        should_stop: called frequently.
        on_progress: called with the progress of a job.

    Raises:
        Stopped: `should_stop` returned True; progress is kept.
    """
    results = JobResult()
    for job in jobs:
        if should_stop():
            raise Stopped
        if is_done(job):
            results.skipped.append(job.name)
            after(job)
            continue
        try:
            before(job)
            runner = _Runner(job, device, num_sharing, should_stop, partial(on_progress, job))
            is_new, failed = runner.run()
        except BusyError:
            results.busy.append(job.name)
        # One model that fails must not stop the others.
        except Exception as error:
            results.failed[job.name] = _message(error, job.error_file())
        else:
            results.failed |= failed
            if not failed:
                # Another process may have finished the job after it was checked.
                (results.done if is_new else results.skipped).append(job.name)
        after(job)
    return results


@dataclass(frozen=True)
class _Runner:
    """Runs one job."""

    job: Job
    device: torch.device | str
    num_sharing: int
    should_stop: Callable[[], bool]
    on_progress: Callable[[Progress], None]

    def run(self) -> tuple[bool, dict[str, str]]:
        """Train the model and test it for every cell.

        Returns:
            Whether there was anything to do, and the cells whose tests failed with a message.
        """
        job, run = self.job, Run(self.job.path)
        # One lock for all steps, so that no other process does one of them.
        with run.files.lock():
            result, is_new = self._train(run)
            failed = {}
            # Datasets that are not prepared are replaced by the same generated one.
            tested: dict[tuple[str, int | None], dict[str, Any]] = {}
            for cell in job.cells:
                if cell.test_dataset is None:
                    continue
                try:
                    if read_test(job.path, cell, result) is None:
                        is_new = True
                        dataset = job.test_dataset(cell)
                        if dataset not in tested:
                            tested[dataset] = self._test(*dataset, result)
                        write_json(test_file(job.path, cell), tested[dataset])
                    job.error_file(cell).unlink(missing_ok=True)
                # A missing dataset must not prevent tests on the others.
                except Exception as error:
                    failed[cell.id] = _save_error(error, job.error_file(cell))
        return is_new, failed

    def _train(self, run: Run) -> tuple[dict[str, Any], bool]:
        """The result of the training, and whether the model had to be trained."""
        job = self.job
        if run.files.exists:
            state, note = training_status(job, run)
            if state == State.DIFFERS:
                raise CheckpointError(f"{note}.")
            if run.result is not None and has_trained(
                run.result, job.experiment.outer.num_iterations
            ):
                return run.result, False
        job.error_file().unlink(missing_ok=True)
        try:
            self._pretrain()
            result = train_run(
                Run.new(job.path, _at_least(job.experiment, _num_done(run))),
                resume=run.files.exists,
                device=self.device,
                lock=False,
                num_sharing=self.num_sharing,
                extra={RESULT_KEY: {"run": job.run, "is_quick": job.is_quick}},
                should_stop=self.should_stop,
                on_progress=self.on_progress,
            )
        except BusyError:
            # Another job is pretraining the backbone.
            raise
        except Exception as error:
            _save_error(error, job.error_file())
            raise
        return result, True

    def _pretrain(self) -> None:
        """Pretrain the backbone, unless another job has done so."""
        job = self.job
        if job.pretraining is None:
            return

        def report(done: int, total: int, epoch: Epoch | None) -> None:
            work = Work("pretraining", done, total, "batches")
            self.on_progress(Progress(0, job.experiment.outer.num_iterations, work=work))

        # All seeds share one backbone.
        experiment = job.experiment.model_copy(update={"seed": 0})
        pretrain_run(
            Run.new(job.pretraining, experiment),
            options=QUICK_PRETRAINING if job.is_quick else PRETRAINING,
            device=self.device,
            should_stop=self.should_stop,
            on_progress=report,
        )

    def _test(self, dataset: str, size: int | None, result: dict[str, Any]) -> dict[str, Any]:
        """Test the model on another dataset."""
        count, run = result["num_iterations"], Run.open(self.job.path)

        def on_tasks(done: int, total: int) -> None:
            work = Work(f"testing on {dataset}", done, total)
            self.on_progress(Progress(count, count, work=work))
            if self.should_stop():
                raise Stopped

        found = evaluate_run(
            run,
            overrides=run.dataset_overrides(dataset, size=size),
            checkpoint="ensemble",
            device=self.device,
            on_tasks=on_tasks,
        )
        return {**found.as_dict(), "dataset": dataset, "num_iterations": count}


def _num_done(run: Run) -> int:
    """The iterations that a run has done; the last validation may have been earlier."""
    last = run.load_last() if run.files.exists else None
    return 0 if last is None else int(last.progress["iteration"])


def _at_least(experiment: Experiment, num_iterations: int) -> Experiment:
    """The experiment with at least so many iterations, up to the end of their epoch."""
    outer = experiment.outer
    if num_iterations <= outer.num_iterations:
        return experiment
    whole = -(-num_iterations // outer.validate_every) * outer.validate_every
    outer = outer.model_copy(update={"num_iterations": whole})
    return experiment.model_copy(update={"outer": outer})


def _save_error(error: Exception, file: Path) -> str:
    """Write an error to a file of the run folder; returns its message."""
    message = _message(error, file)
    details = "" if _is_known(error) else "".join(traceback.format_exception(error))
    # The message is shown in any case.
    with contextlib.suppress(OSError):
        write_atomic(file, f"{message}\n{details}".encode())
    return message


def _message(error: Exception, file: Path) -> str:
    if _is_known(error):
        return " ".join(str(error).split())
    return f"{' '.join(repr(error).split())}; what happened is in {file}."


def _is_known(error: Exception) -> bool:
    return isinstance(error, AlfaError | OSError)
