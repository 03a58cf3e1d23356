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
from alfa.paper._cell_status import State, is_done, read_test, test_file, training_status
from alfa.paper._job import PRETRAINING, QUICK_PRETRAINING, RESULT_KEY, Job
from alfa.runs import Run
from alfa.training import Epoch, Progress, Work, pretrain_run, train_run


@dataclass
class JobResult:
    """The outcome of jobs, by their names."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # were done before
    busy: list[str] = field(default_factory=list)  # another process is running them
    failed: dict[str, str] = field(default_factory=dict)  # errors of jobs or single cells

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

    Stopped jobs are resumed, and models that were trained for fewer iterations are trained further.
    `num_sharing` jobs share the memory of this machine. `before` is called before each job that is
    not done, and `after` after each job. If `should_stop` returns True, progress is saved, and
    Stopped is raised.
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
        # A model that fails must not stop the others.
        except Exception as error:
            results.failed[job.name] = _describe(error, job.error_file(), save=False)
        else:
            results.failed |= failed
            if not failed:
                # Another process may have completed the job after `is_done` was called.
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

        Returns whether anything was left to do, and the errors of failed tests by their cells.
        """
        job, run = self.job, Run(self.job.path)
        # The lock covers all steps, so that no other process repeats one.
        with run.files.lock():
            result, is_new = self._train(run)
            failed = {}
            # Datasets that are not prepared share a generated one.
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
                    failed[cell.id] = _describe(error, job.error_file(cell))
        return is_new, failed

    def _train(self, run: Run) -> tuple[dict[str, Any], bool]:
        """Return the result of the training, and whether the model was trained now."""
        job = self.job
        if run.files.exists:
            state, note = training_status(job, run)
            if state == State.DIFFERS:
                raise CheckpointError(f"{note}.")
            if state == State.DONE and run.result is not None:
                return run.result, False
        job.error_file().unlink(missing_ok=True)
        try:
            self._pretrain()
            result = train_run(
                Run.new(job.path, _never_shorter(job.experiment, run)),
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
            _describe(error, job.error_file())
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


def _never_shorter(experiment: Experiment, run: Run) -> Experiment:
    """Extend an experiment to the last epoch of a run that was stopped after more iterations."""
    last = run.load_last() if run.files.exists else None
    done = 0 if last is None else int(last.progress["iteration"])
    outer = experiment.outer
    if done <= outer.num_iterations:
        return experiment
    num_iterations = -(-done // outer.validate_every) * outer.validate_every
    outer = outer.model_copy(update={"num_iterations": num_iterations})
    return experiment.model_copy(update={"outer": outer})


def _describe(error: Exception, file: Path, *, save: bool = True) -> str:
    """Return the message of an error, and write it to `file`, with a traceback if unexpected.

    Without `save`, only unexpected errors are written.
    """
    if isinstance(error, AlfaError | OSError):
        message, details = " ".join(str(error).split()), ""
    else:
        message = f"{' '.join(repr(error).split())}; the traceback is in {file}."
        details = "".join(traceback.format_exception(error))
    if save or details:
        # The caller reports the message even if the file cannot be written.
        with contextlib.suppress(OSError):
            write_atomic(file, f"{message}\n{details}".encode())
    return message
