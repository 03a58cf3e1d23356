"""The outer loop (Eqs. 2 and 6, Algorithm 1)."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

import alfa
from alfa.build import build_learner, build_tasks
from alfa.config import Experiment, differing, to_dict
from alfa.data import SPLITS
from alfa.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    LostError,
    Stopped,
)
from alfa.inner import MemoryPlan
from alfa.models import Model
from alfa.train.agree import check_files, compare_processes
from alfa.train.best import Best
from alfa.train.checkpoint import Checkpoint
from alfa.train.distributed import ALONE, Processes
from alfa.train.evaluate import ADVICE, Evaluation, evaluate
from alfa.train.kept import load_best, with_kept_best
from alfa.train.launched import launch_name
from alfa.train.outer import OuterStep
from alfa.train.progress import OnProgress, Progress, Work
from alfa.train.run import Run
from alfa.train.weights import load_backbone


def train(
    experiment: Experiment,
    path: Path | str,
    *,
    resume: bool = False,
    device: torch.device | str = "cpu",
    lock: bool = True,
    processes: Processes = ALONE,
    num_sharing: int = 1,
    extra: Mapping[str, Any] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: OnProgress = lambda progress: None,
) -> dict[str, Any]:
    """Train an experiment in a run folder, then test its best model.

    Args:
        experiment: what to train.
        path: the run folder, which only the first process needs.
        resume: go on from the folder's last checkpoint, to the same numbers as an unbroken run. One
            that is trained further than it was to be at first is the longer run, too, unless it
            was validated where it ended because that was its end: that model may be the best, and
            the next mean training loss begins there.
        device: where to compute.
        lock: keep other processes from the folder; not if the caller does so already.
        processes: that train it together.
        num_sharing: trainings that share the memory of this machine.
        extra: what else the result is to say, by name.
        should_stop: asked after every iteration and every few tasks of a validation or test.
        on_progress: called after every iteration.

    Returns:
        The content of ``result.json``.

    Raises:
        CheckpointError: the folder cannot be used, or there is nothing to resume.
        DataError: the data is not what the run has been trained on.
        DivergedError: a loss or gradient is not finite; the last good checkpoint is kept.
        LostError: another process is gone; what was done is kept.
        Stopped: `should_stop` said so; what was done is kept.
    """
    # Built first: what cannot be built leaves no folder behind.
    run = Run(path)
    trainer = processes.together(
        lambda: _Trainer(experiment, run, device, processes, num_sharing, should_stop, on_progress)
    )
    compare_processes(processes, experiment, trainer.tasks, versions=_versions())
    with ExitStack() as stack:

        def begin() -> Checkpoint:
            run.check(resume=resume)
            if not resume:
                trainer.load_weights()
            if lock:
                stack.enter_context(run.lock())
            return trainer.begin(resume=resume)

        trainer.restore(trainer.shared(begin))
        trainer.train()
        return trainer.test(extra or {})


def _versions() -> dict[str, str]:
    return {"alfa": alfa.__version__, "torch": torch.__version__}


class _Trainer:
    def __init__(
        self,
        experiment: Experiment,
        run: Run,
        device: torch.device | str,
        processes: Processes,
        num_sharing: int,
        should_stop: Callable[[], bool],
        on_progress: OnProgress,
    ) -> None:
        self.experiment, self.run, self.device = experiment, run, torch.device(device)
        self.processes, self.should_stop, self.on_progress = processes, should_stop, on_progress
        self.tasks = build_tasks(experiment)
        self.tasks.check(*SPLITS)
        self.learner = build_learner(experiment, self.tasks).to(self.device)
        self.step = OuterStep(
            experiment, self.learner, self.tasks, processes, self.device, num_sharing
        )
        self.iteration = 0
        # The last iteration that was validated.
        self.validated = -1
        self.best = Best()
        self.seconds = 0.0
        self.skipped = 0
        # Of the files of the tasks, on all machines.
        self.stamps: list[str] = []
        # The losses since the last validation.
        self.window: list[float] = []
        # When the state was last kept, and which one.
        self.saved = time.perf_counter()
        self.kept: tuple[int, int] | None = None

    def begin(self, *, resume: bool) -> Checkpoint:
        """Make the run folder ready; returns the state to go on from."""
        if not resume:
            self.run.create(self.experiment, launch=launch_name())
            self.run.write_signature(self.tasks.signature())
            return self._checkpoint(self.step.optimizer)
        self._check_experiment()
        self.run.remove_leftovers()
        checkpoint = self.run.load_last(self.experiment)
        if checkpoint is None:
            # Killed before the first checkpoint: the beginning is where it goes on from.
            self.load_weights()
            self.run.forget_models()
            self.run.rewind_metrics(-1)
            self.run.write_config(self.experiment)
            self.run.write_signature(self.tasks.signature())
            return self._checkpoint(self.step.optimizer)
        self._check_data()
        iteration, wanted = checkpoint.progress["iteration"], self.experiment.outer.num_iterations
        if iteration > wanted:
            raise CheckpointError(
                f"{self.run.path} has done {iteration} iterations already, more than the "
                f"{wanted} asked for by outer.num_iterations."
            )
        if iteration < wanted:
            # A result of the shorter training would pass for that of the longer one.
            self.run.set_result_aside()
        checkpoint = with_kept_best(checkpoint, run=self.run, experiment=self.experiment)
        best = Best.from_progress(checkpoint.progress).iterations
        self.run.keep_members(best)
        if best and self.experiment.test.ensemble > 1:
            self.run.add_best_member(best[0], self.experiment)
        # What is to be validated again is also written again.
        self.run.rewind_metrics(checkpoint.progress.get("validated", iteration))
        self.run.write_config(self.experiment)
        return checkpoint

    def _check_experiment(self) -> None:
        """Make sure that the run was begun with what it is to go on with.

        Raises:
            CheckpointError: it was not; says what differs.
        """
        before = self.run.experiment()
        if before.fingerprint() != self.experiment.fingerprint():
            raise CheckpointError(
                f"{self.run.path} belongs to another experiment: "
                f"{', '.join(differing(before, self.experiment))}; leave the change out, or train "
                "in another folder."
            )

    def _check_data(self) -> None:
        """Make sure that the data is what the run has been trained on.

        Raises:
            CheckpointError: it is not.
        """
        before, now = self.run.signature(self.experiment), self.tasks.signature()
        if before.data and now.data and before.data != now.data:
            raise CheckpointError(
                f"the data of {self.run.path} is not what it has been trained on: it was prepared "
                "anew, from other images or in another way; go on with the data it had, or train "
                "again in another folder."
            )

    def shared(self, make: Callable[[], Checkpoint]) -> Checkpoint:
        """A checkpoint that the first process makes or reads, for all."""
        return self.processes.from_first(
            make,
            encode=Checkpoint.to_bytes,
            decode=lambda content: Checkpoint.from_bytes(
                content, fingerprint=self.experiment.fingerprint(), source="of the first process"
            ),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a state."""
        progress = checkpoint.progress
        checkpoint.restore(self.learner, self.step.optimizer)
        self.iteration = progress["iteration"]
        # Older checkpoints were made after the validation, and have no plan.
        self.validated = progress.get("validated", self.iteration)
        self.best = Best.from_progress(progress)
        self.seconds = progress["seconds"]
        self.skipped = progress.get("skipped", 0)
        self.window = progress.get("window", [])
        if (plan := progress.get("memory")) is not None:
            self.step.memory = MemoryPlan(**plan)
            self.step.memory_budget = progress.get("memory_budget")
        total = self.experiment.outer.num_iterations
        self.stamps = check_files(
            self.processes,
            self.tasks,
            known=progress.get("stamps", []),
            has_begun=self.iteration > 0,
            tell=lambda text: self.on_progress(Progress(self.iteration, total, message=text)),
        )

    def load_weights(self) -> None:
        """Begin with the backbone that the experiment names, if it names one."""
        weights = self.experiment.model.options.get("weights")
        if weights is None:
            return
        model = self.learner.model
        if not isinstance(model, Model) or model.head_name is None:
            raise ConfigError(
                f"model.weights is {weights!r}, but {self.experiment.model.name!r} has no backbone "
                "to load; leave it out."
            )
        load_backbone(model, Path(weights))

    def train(self) -> None:
        # A fixed init with a rule that has no parameters has nothing to train.
        total = self.experiment.outer.num_iterations if self.step.parameters else 0
        if self.iteration < total:
            self.on_progress(Progress(self.iteration, total, message=str(self.step.plan())))
        self.saved = time.perf_counter()
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
        is_end = self.iteration % self.experiment.outer.validate_every == 0 and self.iteration > 0
        return (is_end or self.iteration == total) and self.validated != self.iteration

    def _must_save(self) -> bool:
        engine = self.experiment.engine
        every = engine.checkpoint_every
        late = time.perf_counter() - self.saved > engine.checkpoint_seconds
        return late or (every is not None and self.iteration % every == 0)

    def _iterate(self) -> None:
        began = time.perf_counter()
        try:
            self.window.append(self.step(self.iteration))
        except DivergedError as error:
            self._skip(error)
        self.iteration += 1
        self.seconds += time.perf_counter() - began
        if self._must_save():
            self._save()

    def _skip(self, error: DivergedError) -> None:
        """Pass over what is not finite, as often as the experiment allows."""
        if self.skipped >= self.experiment.outer.max_skipped:
            raise error
        self.skipped += 1

    def _validate(self) -> dict[str, Any]:
        """Validate, write the metrics, and keep the state."""
        found: Evaluation | None = None
        try:
            found = evaluate(
                self.learner,
                self.tasks,
                num_tasks=self.experiment.outer.num_val_tasks,
                num_steps=self.experiment.inner.num_test_steps,
                split="val",
                seed=self.experiment.seed,
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
        is_best = found is not None and self._is_best(found)
        self.processes.from_first(lambda: self._write(record, is_best=is_best))
        return record

    def _is_best(self, found: Evaluation) -> bool:
        """Whether this is the best epoch so far; also counts it if it is one of the best."""
        num_members = self.experiment.test.ensemble
        self.best, is_best = self.best.with_epoch(self.iteration, found, num_members=num_members)
        return is_best

    def _write(self, record: dict[str, Any], *, is_best: bool) -> None:
        # The metrics come first: a record without its checkpoint is forgotten on resume.
        self.run.append_metrics(record)
        if self.iteration in self.best.iterations and self.experiment.test.ensemble > 1:
            self._checkpoint(None).save(self.run.member(self.iteration))
        self._save()
        # After the state, which knows it: whoever goes on from the one before may find another.
        if is_best:
            self._checkpoint(None).save(self.run.checkpoint("best"))
        # Only now does nothing refer to the members that others have replaced.
        self.run.keep_members(self.best.iterations)

    def _save(self) -> None:
        """Keep the state, unless it is kept already."""
        state = (self.iteration, self.validated)
        if self.processes.is_first and state != self.kept:
            self.run.save_last(self._checkpoint(self.step.optimizer))
        self.kept, self.saved = state, time.perf_counter()

    def _show_validation(self, done: int) -> None:
        outer = self.experiment.outer
        work = Work("validating", done, outer.num_val_tasks)
        self._show(Progress(self.iteration, outer.num_iterations, work=work))

    def _show(self, progress: Progress) -> None:
        self.on_progress(progress)
        if self.should_stop():
            raise Stopped

    def _checkpoint(self, optimizer: torch.optim.Optimizer | None) -> Checkpoint:
        return Checkpoint.of(
            self.learner,
            optimizer,
            fingerprint=self.experiment.fingerprint(),
            progress={
                "iteration": self.iteration,
                "validated": self.validated,
                **self.best.as_progress(),
                "seconds": self.seconds,
                "skipped": self.skipped,
                "window": self.window,
                "stamps": self.stamps,
                "memory": None if self.step.memory is None else asdict(self.step.memory),
                "memory_budget": self.step.memory_budget,
            },
        )

    def test(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Test the model that was best in validation, and the best ones together."""
        if not self.best.epochs:
            raise DivergedError(
                f"no validation of {self.run.path} was finite, so there is no best model to test; "
                f"{ADVICE}"
            )
        wanted = self.best.iterations[0]
        best = self.shared(lambda: load_best(self.run, self.experiment, iteration=wanted))
        results = {"test": self._tested([best])}
        members = self._members()
        if len(members) > 1:
            iterations = [member.progress["iteration"] for member in members]
            results["ensemble"] = {**self._tested(members), "iterations": iterations}
        first, memory = self.best.epochs[0], self.step.memory
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
                "memory": None if memory is None else memory.mode,
                "tasks_at_once": None if memory is None else memory.tasks_at_once,
                "processes": self.processes.count,
            },
            "versions": {**_versions(), "python": platform.python_version()},
            "config": to_dict(self.experiment),
            **extra,
        }
        self.processes.from_first(lambda: self.run.write_result(result))
        return result

    def _members(self) -> list[Checkpoint]:
        """Those of the best models that were kept, as many as are asked for."""
        wanted = self.best.iterations[: self.experiment.test.ensemble]
        kept = self.processes.from_first(lambda: self.run.kept_members(wanted))
        return [self.shared(partial(self.run.load_member, i, self.experiment)) for i in kept]

    def _tested(self, members: list[Checkpoint]) -> dict[str, Any]:
        test = self.experiment.test
        total = test.num_tasks * len(members)
        what = "testing the best model" if len(members) == 1 else f"testing {len(members)} models"
        return evaluate(
            self.learner,
            self.tasks,
            members=members,
            num_tasks=test.num_tasks,
            num_steps=self.experiment.inner.num_test_steps,
            split="test",
            seed=self.experiment.seed,
            device=self.device,
            processes=self.processes,
            on_tasks=lambda done: self._show(
                Progress(self.iteration, self.iteration, work=Work(what, done, total))
            ),
        ).as_dict()
