"""The loop of a training: iterations, validations, checkpoints, and the final test."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from alfa._distributed import Processes, launch_name
from alfa._io import write_atomic
from alfa.data import SPLITS
from alfa.errors import CheckpointError, DivergedError, LostError, Stopped
from alfa.evaluation import Evaluation, evaluate
from alfa.runs import Checkpoint, Epoch, Run, TrainingProgress, recover_best
from alfa.training._consistency import check_data, check_files
from alfa.training._outer_step import OuterStep
from alfa.training._pretrain import Epoch as PretrainingEpoch
from alfa.training._pretrain import pretrain_run

if TYPE_CHECKING:
    from alfa.training._trainer import Trainer


# The iteration and the last validation of a training that has not begun.
_UNTRAINED = (0, TrainingProgress(iteration=0).validated)


class Work(NamedTuple):
    """Work other than outer iterations, such as the tasks of a validation or a test."""

    what: str
    done: int
    total: int
    unit: str = "tasks"


@dataclass(frozen=True)
class Progress:
    """The progress of a training, for display.

    Attributes:
        iteration: completed outer iterations.
        num_iterations: the total number of outer iterations.
        record: the new record of the metrics, after a validation.
        message: a message for the user.
        work: the current work other than outer iterations, if any.
    """

    iteration: int
    num_iterations: int
    record: dict[str, Any] | None = None
    message: str | None = None
    work: Work | None = None


OnProgress = Callable[[Progress], None]


@dataclass(eq=False)
class TrainingLoop:
    """One call of `Trainer.fit`."""

    trainer: Trainer
    run: Run
    processes: Processes
    num_sharing: int
    should_stop: Callable[[], bool]
    on_progress: OnProgress

    def __post_init__(self) -> None:
        self.learner, self.tasks = self.trainer.learner, self.trainer.tasks
        self.optimizer = self.trainer.active_optimizer
        self.step = OuterStep(self.trainer, processes=self.processes, num_sharing=self.num_sharing)
        # A fixed init with a rule without parameters has nothing to train.
        self.total = self.trainer.num_iterations if self.step.parameters else 0
        self.evaluate = partial(
            evaluate,
            tasks=self.tasks,
            num_steps=self.trainer.num_test_steps,
            seed=self.trainer.seed,
            device=self.trainer.device,
            processes=self.processes,
        )
        self.state = TrainingProgress(iteration=0)
        # The time of the last checkpoint, with its iteration and last validation.
        self.saved_at = time.perf_counter()
        self.saved: tuple[int, int] | None = None

    def begin(self, locks: ExitStack | None, *, resume: bool) -> Checkpoint:
        """Lock and prepare the run folder, and return the state to continue from."""
        run, files = self.run, self.run.files
        # Check before locking, which would create the folder.
        if resume:
            files.check_exists()
        before = Run.open(run.path) if resume else run
        if not resume:
            files.check_empty()
            run.load_initial_weights(self.learner)
        if locks is not None:
            locks.enter_context(files.lock())
        checkpoint = None
        if not resume:
            files.check_empty()
            files.write_launch(launch_name())
        else:
            if before.fingerprint != run.fingerprint:
                changes = ", ".join(before.differences(run))
                raise CheckpointError(
                    f"{run.path} belongs to another experiment: {changes}; undo the change, or "
                    "train in another folder."
                )
            files.remove_leftovers()
            checkpoint = run.load_last()
            if checkpoint is None:
                # The process was killed before the first checkpoint: start over.
                run.load_initial_weights(self.learner)
                files.remove_other_members([])
                files.checkpoint("best").unlink(missing_ok=True)
                files.rewind_metrics(-1)
        if checkpoint is None:
            run.create(self.tasks.signature())
            return self._checkpoint(self.optimizer)
        return self._resume(checkpoint, before)

    def _resume(self, checkpoint: Checkpoint, before: Run) -> Checkpoint:
        """Make the run folder consistent with a checkpoint to resume from."""
        run, files, wanted = self.run, self.run.files, self.trainer.num_iterations
        check_data(run.path, before.signature.data, self.tasks)
        earlier = before.experiment.outer.num_iterations
        if self.step.objective.uses_progress and earlier != wanted:
            raise CheckpointError(
                f"{run.path} was trained with outer.num_iterations = {earlier}, and its objective "
                f"changes in the course of the training, so it cannot continue with {wanted}; "
                "restore the value, or train in another folder."
            )
        iteration = checkpoint.progress["iteration"]
        if iteration > wanted:
            raise CheckpointError(
                f"{run.path} was trained for {iteration} iterations, more than the {wanted} of "
                "outer.num_iterations; increase it."
            )
        if iteration < wanted:
            # Otherwise, the result of the shorter training would count for the longer one.
            files.set_result_aside()
        checkpoint = recover_best(checkpoint, run)
        best = TrainingProgress.model_validate(checkpoint.progress).best_iterations
        files.remove_other_members(best)
        if best and self.trainer.ensemble > 1 and not files.member(best[0]).is_file():
            write_atomic(files.member(best[0]), files.checkpoint("best").read_bytes())
        # Validations that will be repeated will write their records again.
        files.rewind_metrics(checkpoint.progress["validated"])
        run.create(before.signature)
        return checkpoint

    def from_first(self, make: Callable[[], Checkpoint]) -> Checkpoint:
        """Send the checkpoint that the first process makes or reads to every process."""
        if self.processes.count == 1:
            return make()
        content = self.processes.bytes_from_first(lambda: make().to_bytes())
        return Checkpoint.from_bytes(
            content, fingerprint=self.run.fingerprint, source="of the first process"
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the learner, the optimizer, and the progress of a checkpoint."""
        self.state = TrainingProgress.model_validate(checkpoint.progress)
        checkpoint.restore(self.learner, self.optimizer, self.step.objective)
        self.step.plan, self.step.planned_budget = self.state.memory, self.state.memory_budget
        if self.trainer.scheduler is not None and self.state.schedule is not None:
            self.trainer.scheduler.load_state_dict(self.state.schedule)
        self.state.stamps = check_files(
            self.processes,
            self.tasks,
            known=self.state.stamps,
            has_begun=self.state.iteration > 0,
            tell=lambda message: self._report(message=message),
        )

    def pretrain(self) -> None:
        """Pretrain the backbone before the first iteration, if the experiment asks for it."""
        state = self.state
        if self.run.pretraining is None or (state.iteration, state.validated) != _UNTRAINED:
            return

        def load() -> Checkpoint:
            self.run.load_initial_weights(self.learner)
            return self._checkpoint(self.optimizer)

        self.processes.while_first(self._pretrain)
        self.restore(self.from_first(load))

    def _pretrain(self, keep_waiting: Callable[[], None]) -> None:
        def report(done: int, total: int, epoch: PretrainingEpoch | None) -> None:
            keep_waiting()
            if epoch is not None:
                held_out = ""
                if epoch.accuracy is not None:
                    held_out = f", accuracy {100 * epoch.accuracy:.2f} % on held-out images"
                text = f"pretraining, {done:,} of {total:,} batches, loss {epoch.loss:.3f}"
                self._report(message=f"{text}{held_out}")
            self._report(work=Work("pretraining", done, total, "batches"))

        pretrain_run(
            self.run,
            path=self.run.files.pretraining,
            device=self.trainer.device,
            should_stop=self.should_stop,
            on_progress=report,
        )

    def prepare(self) -> None:
        """Compute what all tasks share, such as features of a pretrained backbone."""

        def prepare_first(keep_waiting: Callable[[], None]) -> None:
            def report(done: int, total: int) -> None:
                keep_waiting()
                self._report(work=Work("computing features", done, total, "images"))
                if self.should_stop():
                    raise Stopped

            for split in SPLITS:
                self.tasks.prepare(split, report)

        # The others read the results, or compute them when they draw tasks.
        self.processes.while_first(prepare_first)

    def train(self) -> None:
        if self.state.iteration < self.total:
            self._report(message=str(self.step.make_plan()))
        self.saved_at = time.perf_counter()
        try:
            while self.state.iteration < self.total or self._must_validate():
                if not self._must_validate():
                    self._iterate()
                self._report(record=self._validate() if self._must_validate() else None)
                if self.processes.any(self.should_stop()):
                    raise Stopped
        except (LostError, Stopped):
            self._save()
            raise

    def _report(self, **news: Any) -> None:
        self.on_progress(Progress(self.state.iteration, self.total, **news))

    def report_work(self, what: str, total: int, done: int) -> None:
        self._report(work=Work(what, done, total))
        if self.should_stop():
            raise Stopped

    def _must_validate(self) -> bool:
        iteration = self.state.iteration
        is_end = iteration % self.trainer.validate_every == 0
        is_end = is_end and (iteration > 0 or self.trainer.validate_start)
        return (is_end or iteration == self.total) and self.state.validated != iteration

    def _iterate(self) -> None:
        state, every = self.state, self.trainer.checkpoint_every
        began = time.perf_counter()
        try:
            state.window.append(self.step(state.iteration))
        except DivergedError as error:
            self._skip(error)
        self.step.advance_schedule()
        state.iteration += 1
        now = time.perf_counter()
        state.seconds += now - began
        is_late = now - self.saved_at > self.trainer.checkpoint_seconds
        if is_late or (every is not None and state.iteration % every == 0):
            self._save()

    def _skip(self, error: DivergedError) -> None:
        """Skip a non-finite iteration or validation, or raise if the options do not allow it."""
        if self.state.skipped >= self.trainer.max_skipped:
            raise error
        self.state.skipped += 1

    def _validate(self) -> dict[str, Any]:
        """Validate, write the metrics, save the state, and return the record."""
        state, num_tasks = self.state, self.trainer.num_val_tasks
        found: Evaluation | None = None
        try:
            found = self.evaluate(
                self.learner,
                num_tasks=num_tasks,
                split="val",
                where=f"at iteration {state.iteration}, on validation tasks",
                on_tasks=partial(self.report_work, "validating", num_tasks),
            )
        except DivergedError as error:
            self._skip(error)
        state.validated = state.iteration
        record: dict[str, Any] = {"iteration": state.iteration}
        if state.window:
            record["train_loss"] = sum(state.window) / len(state.window)
            state.window = []
        record["val_loss"] = None if found is None else found.loss
        if found is not None and found.accuracy is not None:
            record["val_accuracy"] = found.accuracy
        if found is not None and found.metric is not None:
            record["val_metric"] = found.metric
        if state.skipped:
            record["skipped"] = state.skipped
        is_best = False
        if found is not None:
            epoch = Epoch(state.iteration, found.score, found.loss, found.accuracy, found.metric)
            is_best = state.add_epoch(epoch, num_members=self.trainer.ensemble)
        self.processes.from_first(lambda: self._write(record, is_best=is_best))
        return record

    def _write(self, record: dict[str, Any], *, is_best: bool) -> None:
        files, iteration = self.run.files, self.state.iteration
        # The metrics come first: resuming removes records without a checkpoint.
        files.append_metrics(record)
        if iteration == 0 and self.trainer.validate_start:
            self._checkpoint(None).save(files.checkpoint("start"))
        if iteration in self.state.best_iterations and self.trainer.ensemble > 1:
            self._checkpoint(None).save(files.member(iteration))
        self._save()
        # The best model comes after the state that refers to it; `recover_best` repairs the folder
        # if the process is killed in between.
        if is_best:
            self._checkpoint(None).save(files.checkpoint("best"))
        # The saved state no longer refers to these members.
        files.remove_other_members(self.state.best_iterations)

    def _save(self) -> None:
        """Save the state, unless it is saved already."""
        current = (self.state.iteration, self.state.validated)
        if self.processes.is_first and current != self.saved:
            self.run.save_last(self._checkpoint(self.optimizer))
        self.saved, self.saved_at = current, time.perf_counter()

    def _checkpoint(self, optimizer: torch.optim.Optimizer | None) -> Checkpoint:
        state, scheduler = self.state, None if optimizer is None else self.trainer.scheduler
        state.memory, state.memory_budget = self.step.plan, self.step.planned_budget
        state.schedule = None if scheduler is None else scheduler.state_dict()
        return Checkpoint.of(
            self.learner,
            optimizer,
            fingerprint=self.run.fingerprint,
            progress=state.model_dump(mode="json"),
            objective=None if optimizer is None else self.step.objective,
        )
