"""The state of a training: iterations, validations, checkpoints, and the final test."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler

import alfa
from alfa._distributed import Processes, launch_name
from alfa.data import Tasks
from alfa.errors import CheckpointError, DivergedError, LostError, Stopped
from alfa.evaluation import ADVICE, Evaluation, evaluate
from alfa.learner import Learner
from alfa.runs import Best, Checkpoint, Epoch, Run, TrainingProgress, load_best, recover_best
from alfa.training._consistency import check_data, check_experiment, check_files
from alfa.training._outer_step import OuterStep
from alfa.training._progress import OnProgress, Progress, Work


@dataclass(frozen=True)
class TrainingOptions:
    """The numbers of a training; `alfa.Trainer` documents them."""

    num_iterations: int
    num_tasks: int
    max_gradient_norm: float | None
    max_skipped: int
    validate_every: int
    num_val_tasks: int
    num_test_tasks: int
    num_test_steps: int | None
    ensemble: int
    seed: int
    memory: Literal["auto", "store", "recompute"]
    tasks_at_once: int | None
    memory_budget: float | None
    checkpoint_every: int | None
    checkpoint_seconds: float


def versions() -> dict[str, str]:
    return {"alfa": alfa.__version__, "torch": torch.__version__}


class TrainingLoop:
    """The state of one call of `Trainer.fit`."""

    def __init__(
        self,
        learner: Learner,
        tasks: Tasks,
        options: TrainingOptions,
        run: Run,
        *,
        optimizer: torch.optim.Optimizer | None,
        scheduler: LRScheduler | None,
        device: torch.device,
        processes: Processes,
        num_sharing: int,
        should_stop: Callable[[], bool],
        on_progress: OnProgress,
    ) -> None:
        self.learner, self.tasks, self.device = learner, tasks, device
        self.options, self.run, self.processes = options, run, processes
        self.should_stop, self.on_progress = should_stop, on_progress
        self.step = OuterStep(
            self.learner,
            self.tasks,
            optimizer=optimizer,
            scheduler=scheduler,
            device=self.device,
            processes=processes,
            num_sharing=num_sharing,
            num_tasks=self.options.num_tasks,
            max_gradient_norm=self.options.max_gradient_norm,
            seed=self.options.seed,
            memory=self.options.memory,
            tasks_at_once=self.options.tasks_at_once,
            memory_budget=self.options.memory_budget,
        )
        self.iteration = 0
        # The last iteration that was validated.
        self.validated = -1
        self.best = Best()
        self.seconds = 0.0
        self.skipped = 0
        # Modification stamps of the data files, on all machines.
        self.stamps: list[str] = []
        # The losses since the last validation.
        self.window: list[float] = []
        # When the state was last saved, and which one.
        self.saved_at = time.perf_counter()
        self.saved: tuple[int, int] | None = None

    def begin(self, *, resume: bool) -> Checkpoint:
        """Prepare the run folder; returns the state to continue from."""
        run, files, wanted = self.run, self.run.files, self.options.num_iterations
        if not resume:
            files.check_empty()
            files.write_launch(launch_name())
            run.create(self.tasks.signature())
            return self._checkpoint(self.step.optimizer)
        before = Run.open(run.path)
        check_experiment(before, run)
        files.remove_leftovers()
        checkpoint = run.load_last()
        if checkpoint is None:
            # Killed before the first checkpoint: start over.
            run.load_initial_weights(self.learner)
            files.remove_models()
            files.rewind_metrics(-1)
            run.create(self.tasks.signature())
            return self._checkpoint(self.step.optimizer)
        check_data(before, self.tasks)
        iteration = checkpoint.progress["iteration"]
        if iteration > wanted:
            raise CheckpointError(
                f"{run.path} has done {iteration} iterations already, more than the {wanted} asked "
                "for by outer.num_iterations."
            )
        if iteration < wanted:
            # A result of the shorter training would pass for that of the longer one.
            files.set_result_aside()
        checkpoint = recover_best(checkpoint, run)
        best = Best.from_progress(checkpoint.progress).iterations
        files.remove_other_members(best)
        if best and self.options.ensemble > 1:
            run.add_best_member(best[0])
        # What will be validated again will also be written again.
        files.rewind_metrics(checkpoint.progress["validated"])
        run.create(before.signature)
        return checkpoint

    def shared(self, make: Callable[[], Checkpoint]) -> Checkpoint:
        """A checkpoint that the first process makes or reads, for all."""
        return self.processes.from_first(
            make,
            encode=Checkpoint.to_bytes,
            decode=lambda content: Checkpoint.from_bytes(
                content, fingerprint=self.run.fingerprint, source="of the first process"
            ),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a state."""
        progress = TrainingProgress.model_validate(checkpoint.progress)
        checkpoint.restore(self.learner, self.step.optimizer)
        self.iteration, self.validated = progress.iteration, progress.validated
        self.best = Best(tuple(progress.best))
        self.seconds, self.skipped = progress.seconds, progress.skipped
        self.window = progress.window
        self.step.plan, self.step.planned_budget = progress.memory, progress.memory_budget
        if self.step.scheduler is not None and progress.schedule is not None:
            self.step.scheduler.load_state_dict(progress.schedule)
        self.stamps = check_files(
            self.processes,
            self.tasks,
            known=progress.stamps,
            has_begun=self.iteration > 0,
            tell=self._show_message,
        )

    def _show_message(self, text: str) -> None:
        self.on_progress(Progress(self.iteration, self.options.num_iterations, message=text))

    def train(self) -> None:
        # A fixed init with a rule that has no parameters has nothing to train.
        total = self.options.num_iterations if self.step.parameters else 0
        if self.iteration < total:
            self._show_message(str(self.step.make_plan()))
        self.saved_at = time.perf_counter()
        try:
            while self.iteration < total or self._must_validate(total):
                if not self._must_validate(total):
                    self._iterate()
                record = self._validate() if self._must_validate(total) else None
                self.on_progress(Progress(self.iteration, total, record))
                if self.processes.any(self.should_stop()):
                    raise Stopped
        except (LostError, Stopped):
            self._save()
            raise

    def _must_validate(self, total: int) -> bool:
        is_end = self.iteration % self.options.validate_every == 0 and self.iteration > 0
        return (is_end or self.iteration == total) and self.validated != self.iteration

    def _must_save(self) -> bool:
        every = self.options.checkpoint_every
        is_late = time.perf_counter() - self.saved_at > self.options.checkpoint_seconds
        return is_late or (every is not None and self.iteration % every == 0)

    def _iterate(self) -> None:
        began = time.perf_counter()
        try:
            self.window.append(self.step(self.iteration))
        except DivergedError as error:
            self._skip(error)
        self.step.advance_schedule()
        self.iteration += 1
        self.seconds += time.perf_counter() - began
        if self._must_save():
            self._save()

    def _skip(self, error: DivergedError) -> None:
        """Skip an iteration or validation that is not finite, if the options allow it."""
        if self.skipped >= self.options.max_skipped:
            raise error
        self.skipped += 1

    def _validate(self) -> dict[str, Any]:
        """Validate, write the metrics, and save the state."""
        found: Evaluation | None = None
        try:
            found = evaluate(
                self.learner,
                self.tasks,
                num_tasks=self.options.num_val_tasks,
                num_steps=self.options.num_test_steps,
                split="val",
                seed=self.options.seed,
                device=self.device,
                where=f"at iteration {self.iteration}, on validation tasks",
                processes=self.processes,
                on_tasks=self._show_validation,
            )
        except DivergedError as error:
            self._skip(error)
        self.validated = self.iteration
        record: dict[str, Any] = {"iteration": self.iteration}
        if self.window:
            record["train_loss"] = sum(self.window) / len(self.window)
            self.window = []
        record["val_loss"] = None if found is None else found.loss
        if found is not None and found.accuracy is not None:
            record["val_accuracy"] = found.accuracy
        if self.skipped:
            record["skipped"] = self.skipped
        is_best = False
        if found is not None:
            epoch = Epoch(self.iteration, found.score, found.loss, found.accuracy)
            num_members = self.options.ensemble
            self.best, is_best = self.best.with_epoch(epoch, num_members=num_members)
        self.processes.from_first(lambda: self._write(record, is_best=is_best))
        return record

    def _write(self, record: dict[str, Any], *, is_best: bool) -> None:
        files = self.run.files
        # The metrics come first: a record without its checkpoint is removed on resume.
        files.append_metrics(record)
        if self.iteration in self.best.iterations and self.options.ensemble > 1:
            self._checkpoint(None).save(files.member(self.iteration))
        self._save()
        # After the state that refers to it; `recover_best` handles a kill in between.
        if is_best:
            self._checkpoint(None).save(files.checkpoint("best"))
        # Only now does nothing refer to the members that others have replaced.
        files.remove_other_members(self.best.iterations)

    def _save(self) -> None:
        """Save the state, unless it is saved already."""
        state = (self.iteration, self.validated)
        if self.processes.is_first and state != self.saved:
            self.run.save_last(self._checkpoint(self.step.optimizer))
        self.saved, self.saved_at = state, time.perf_counter()

    def _show_validation(self, done: int) -> None:
        work = Work("validating", done, self.options.num_val_tasks)
        self._show(Progress(self.iteration, self.options.num_iterations, work=work))

    def _show(self, progress: Progress) -> None:
        self.on_progress(progress)
        if self.should_stop():
            raise Stopped

    def _checkpoint(self, optimizer: torch.optim.Optimizer | None) -> Checkpoint:
        scheduler = self.step.scheduler if optimizer is not None else None
        progress = TrainingProgress(
            iteration=self.iteration,
            validated=self.validated,
            skipped=self.skipped,
            seconds=self.seconds,
            window=self.window,
            stamps=self.stamps,
            best=list(self.best.epochs),
            memory=self.step.plan,
            memory_budget=self.step.planned_budget,
            schedule=None if scheduler is None else scheduler.state_dict(),
        )
        return Checkpoint.of(
            self.learner,
            optimizer,
            fingerprint=self.run.fingerprint,
            progress=progress.model_dump(mode="json"),
        )

    def test(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Test the model that was best in validation, and the best ones together."""
        if not self.best.epochs:
            raise DivergedError(
                f"no validation of {self.run.path} was finite, so there is no best model to test; "
                f"{ADVICE}"
            )
        wanted = self.best.iterations[0]
        best = self.shared(lambda: load_best(self.run, iteration=wanted))
        results = {"test": self._test([best])}
        members = self._members()
        if len(members) > 1:
            iterations = [member.progress["iteration"] for member in members]
            results["ensemble"] = {**self._test(members), "iterations": iterations}
        first, plan = self.best.epochs[0], self.step.plan
        result = {
            **results,
            "best_iteration": first.iteration,
            "val_loss": first.loss,
            **({} if first.accuracy is None else {"val_accuracy": first.accuracy}),
            "num_iterations": self.iteration,
            "skipped": self.skipped,
            "num_meta_parameters": sum(p.numel() for p in self.step.parameters),
            "seconds": round(self.seconds, 2),
            "engine": {
                "memory": None if plan is None else plan.mode,
                "tasks_at_once": None if plan is None else plan.tasks_at_once,
                "processes": self.processes.count,
            },
            "versions": {**versions(), "python": platform.python_version()},
            "config": self.run.config(),
            **extra,
        }
        self.processes.from_first(lambda: self.run.files.write_result(result))
        return result

    def _members(self) -> list[Checkpoint]:
        """The saved models of the best epochs."""
        wanted = self.best.iterations[: self.options.ensemble]
        saved = self.processes.from_first(lambda: self.run.files.members(wanted))
        return [self.shared(partial(self.run.load_member, i)) for i in saved]

    def _test(self, members: list[Checkpoint]) -> dict[str, Any]:
        num_tasks = self.options.num_test_tasks
        total = num_tasks * len(members)
        name = "testing the best model" if len(members) == 1 else f"testing {len(members)} models"

        def learners() -> Iterator[Learner]:
            for member in members:
                member.restore(self.learner)
                yield self.learner

        return evaluate(
            learners(),
            self.tasks,
            num_tasks=num_tasks,
            num_steps=self.options.num_test_steps,
            split="test",
            seed=self.options.seed,
            device=self.device,
            processes=self.processes,
            on_tasks=lambda done: self._show(
                Progress(self.iteration, self.iteration, work=Work(name, done, total))
            ),
        ).as_dict()
