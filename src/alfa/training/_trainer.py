"""The outer loop (Eqs. 2 and 6, Algorithm 1)."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

import alfa
from alfa._distributed import ALONE, Processes, launch_name
from alfa._runtime import check_device
from alfa.build import describe_experiment
from alfa.data import SPLITS, Tasks
from alfa.errors import CheckpointError, ConfigError, DivergedError, LostError, Stopped
from alfa.evaluation import ADVICE, Evaluation, evaluate
from alfa.learner import Learner
from alfa.optim import Adam
from alfa.runs import (
    Best,
    Checkpoint,
    Epoch,
    Run,
    TrainingProgress,
    load_best,
    recover_best,
)
from alfa.training._consistency import check_data, check_experiment, check_files, compare_processes
from alfa.training._outer_step import OuterStep, trained_parameters
from alfa.training._progress import OnProgress, Progress, Work


class Trainer:
    """Trains a learner in a run folder, then tests its best model.

    Args:
        learner: the learner to train.
        tasks: the tasks, with the splits ``"train"``, ``"val"``, and ``"test"``.
        optimizer: any optimizer of the learner's meta-parameters; by default Adam with a learning
            rate of 0.001.
        scheduler: any scheduler of the optimizer that is stepped once per iteration; by default
            the learning rate is constant.
        num_iterations: outer iterations.
        num_tasks: tasks of an outer iteration.
        max_gradient_norm: a longer outer gradient is scaled down to this norm.
        max_skipped: number of non-finite iterations or validations that are skipped.
        validate_every: outer iterations of an epoch, after which the learner is validated.
        num_val_tasks: validation tasks.
        num_test_tasks: test tasks.
        num_test_steps: inner steps in validation and test; by default as in training.
        ensemble: number of best epochs whose models are also tested together.
        seed: decides the tasks and everything else that is random.
        device: where to compute.
        memory: ``"store"`` keeps the inner steps for the outer gradient, ``"recompute"`` repeats
            them, and ``"auto"`` chooses by the memory budget.
        tasks_at_once: tasks whose outer gradients are computed together; None for automatic.
        memory_budget: in GB; None for most of the free memory.
        checkpoint_every: outer iterations between two checkpoints; None for none.
        checkpoint_seconds: seconds between two checkpoints.

    Example:
        >>> import tempfile
        >>> from alfa import ALFA, MLP, LearnedInit, Learner, Sinusoids, Trainer, mse
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=ALFA(init.layers), loss=mse)
        >>> trainer = Trainer(
        ...     learner, Sinusoids(), num_iterations=4, num_val_tasks=4, num_test_tasks=4
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = trainer.fit(f"{folder}/run")
        >>> result["num_iterations"]
        4
    """

    def __init__(
        self,
        learner: Learner,
        tasks: Tasks,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: LRScheduler | None = None,
        num_iterations: int = 50_000,
        num_tasks: int = 4,
        max_gradient_norm: float | None = None,
        max_skipped: int = 0,
        validate_every: int = 500,
        num_val_tasks: int = 600,
        num_test_tasks: int = 600,
        num_test_steps: int | None = None,
        ensemble: int = 5,
        seed: int = 0,
        device: torch.device | str = "cpu",
        memory: Literal["auto", "store", "recompute"] = "auto",
        tasks_at_once: int | None = None,
        memory_budget: float | None = None,
        checkpoint_every: int | None = None,
        checkpoint_seconds: float = 120.0,
    ) -> None:
        check_device(device, name="`device`")
        self.learner, self.tasks = learner.to(device), tasks
        self.device = torch.device(device)
        self.options: dict[str, Any] = {
            "num_iterations": num_iterations,
            "num_tasks": num_tasks,
            "max_gradient_norm": max_gradient_norm,
            "max_skipped": max_skipped,
            "validate_every": validate_every,
            "num_val_tasks": num_val_tasks,
            "num_test_tasks": num_test_tasks,
            "num_test_steps": num_test_steps,
            "ensemble": ensemble,
            "seed": seed,
            "memory": memory,
            "tasks_at_once": tasks_at_once,
            "memory_budget": memory_budget,
            "checkpoint_every": checkpoint_every,
            "checkpoint_seconds": checkpoint_seconds,
        }
        self._given_optimizer = optimizer
        parameters = trained_parameters(learner)
        if scheduler is not None and optimizer is None:
            raise ConfigError("`scheduler` needs its `optimizer`; pass both.")
        if optimizer is None and parameters:
            optimizer = Adam(parameters, lr=0.001, fused=True)
        if optimizer is not None:
            _check_optimizer(optimizer, scheduler, parameters)
        self.optimizer, self.scheduler = optimizer, scheduler

    @classmethod
    def from_run(cls, run: Run, *, device: torch.device | str = "cpu") -> Trainer:
        """A trainer of the experiment of a run, such as ``Run.new(path, experiment)``."""
        learner, tasks, options = run.build(device)
        return cls(learner, tasks, device=device, **options)

    def fit(
        self,
        run: Run | Path | str,
        *,
        resume: bool = False,
        lock: bool = True,
        processes: Processes = ALONE,
        num_sharing: int = 1,
        extra: Mapping[str, Any] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: OnProgress = lambda progress: None,
    ) -> dict[str, Any]:
        """Train in a run folder, then test the best model.

        Args:
            run: the folder; only the first process needs it.
            resume: continue from the folder's last checkpoint, to the same numbers as an
                uninterrupted run. A run that is resumed with more iterations equals the longer run
                unless it was validated at its earlier end only because that was the end: that
                model may be the best, and the next mean training loss begins there.
            lock: keep other processes out of the folder, unless the caller does so already.
            processes: the processes that train together.
            num_sharing: trainings that share the memory of this machine.
            extra: additional entries of the result.
            should_stop: called after every iteration and every few tasks of an evaluation.
            on_progress: called after every iteration.

        Returns:
            The content of ``result.json``.

        Raises:
            CheckpointError: the folder cannot be used, or there is nothing to resume.
            DataError: the data differs from what the run has been trained on.
            DivergedError: a loss or gradient is not finite; the last good checkpoint is kept.
            LostError: another process is gone; progress is kept.
            Stopped: `should_stop` returned True; progress is kept.
        """
        # First of all: invalid objects leave no folder behind.
        self.tasks.check(*SPLITS)
        if not isinstance(run, Run):
            described = describe_experiment(
                self.learner,
                self.tasks,
                optimizer=self._given_optimizer,
                scheduler=self.scheduler,
                **self.options,
            )
            run = Run.new(run, described)
        training = _Training(self, run, processes, num_sharing, should_stop, on_progress)
        versions = _versions()
        compare_processes(processes, run.config(), self.tasks, versions=versions)
        with ExitStack() as stack:

            def begin() -> Checkpoint:
                if resume:
                    run.files.check_exists()
                else:
                    run.files.check_empty()
                    run.load_initial_weights(self.learner)
                if lock:
                    stack.enter_context(run.files.lock())
                return training.begin(resume=resume)

            training.restore(training.shared(begin))
            training.train()
            return training.test(extra or {})


def train_run(
    run: Run, *, device: torch.device | str = "cpu", processes: Processes = ALONE, **options: Any
) -> dict[str, Any]:
    """Train the experiment of a run; `options` are those of `Trainer.fit`."""
    trainer = processes.together(lambda: Trainer.from_run(run, device=device))
    return trainer.fit(run, processes=processes, **options)


def _versions() -> dict[str, str]:
    return {"alfa": alfa.__version__, "torch": torch.__version__}


def _check_optimizer(
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler | None,
    parameters: list[torch.nn.Parameter],
) -> None:
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if missing := [p for p in parameters if id(p) not in trained]:
        raise ConfigError(
            f"`optimizer` lacks {len(missing)} of the learner's {len(parameters)} meta-parameters; "
            "make it with learner.meta_parameters()."
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ConfigError(
            "`scheduler` is a ReduceLROnPlateau, which needs a metric at every step; use one that "
            "depends on the iteration alone, such as CosineAnnealingLR."
        )
    if scheduler is not None:
        try:
            json.dumps(scheduler.state_dict())
        except TypeError as error:
            raise ConfigError(
                f"`scheduler` has a state that a checkpoint cannot hold: {error}."
            ) from None


class _Training:
    """The state of one call of `Trainer.fit`."""

    def __init__(
        self,
        trainer: Trainer,
        run: Run,
        processes: Processes,
        num_sharing: int,
        should_stop: Callable[[], bool],
        on_progress: OnProgress,
    ) -> None:
        self.learner, self.tasks, self.device = trainer.learner, trainer.tasks, trainer.device
        self.options, self.run, self.processes = trainer.options, run, processes
        self.should_stop, self.on_progress = should_stop, on_progress
        self.step = OuterStep(
            self.learner,
            self.tasks,
            optimizer=trainer.optimizer,
            scheduler=trainer.scheduler,
            device=self.device,
            processes=processes,
            num_sharing=num_sharing,
            num_tasks=self.options["num_tasks"],
            max_gradient_norm=self.options["max_gradient_norm"],
            seed=self.options["seed"],
            memory=self.options["memory"],
            tasks_at_once=self.options["tasks_at_once"],
            memory_budget=self.options["memory_budget"],
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
        run, files, wanted = self.run, self.run.files, self.options["num_iterations"]
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
        if best and self.options["ensemble"] > 1:
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
        self.on_progress(Progress(self.iteration, self.options["num_iterations"], message=text))

    def train(self) -> None:
        # A fixed init with a rule that has no parameters has nothing to train.
        total = self.options["num_iterations"] if self.step.parameters else 0
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
        is_end = self.iteration % self.options["validate_every"] == 0 and self.iteration > 0
        return (is_end or self.iteration == total) and self.validated != self.iteration

    def _must_save(self) -> bool:
        every = self.options["checkpoint_every"]
        is_late = time.perf_counter() - self.saved_at > self.options["checkpoint_seconds"]
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
        if self.skipped >= self.options["max_skipped"]:
            raise error
        self.skipped += 1

    def _validate(self) -> dict[str, Any]:
        """Validate, write the metrics, and save the state."""
        found: Evaluation | None = None
        try:
            found = evaluate(
                self.learner,
                self.tasks,
                num_tasks=self.options["num_val_tasks"],
                num_steps=self.options["num_test_steps"],
                split="val",
                seed=self.options["seed"],
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
            num_members = self.options["ensemble"]
            self.best, is_best = self.best.with_epoch(epoch, num_members=num_members)
        self.processes.from_first(lambda: self._write(record, is_best=is_best))
        return record

    def _write(self, record: dict[str, Any], *, is_best: bool) -> None:
        files = self.run.files
        # The metrics come first: a record without its checkpoint is removed on resume.
        files.append_metrics(record)
        if self.iteration in self.best.iterations and self.options["ensemble"] > 1:
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
        work = Work("validating", done, self.options["num_val_tasks"])
        self._show(Progress(self.iteration, self.options["num_iterations"], work=work))

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
            "versions": {**_versions(), "python": platform.python_version()},
            "config": self.run.config(),
            **extra,
        }
        self.processes.from_first(lambda: self.run.files.write_result(result))
        return result

    def _members(self) -> list[Checkpoint]:
        """The saved models of the best epochs."""
        wanted = self.best.iterations[: self.options["ensemble"]]
        saved = self.processes.from_first(lambda: self.run.files.members(wanted))
        return [self.shared(partial(self.run.load_member, i)) for i in saved]

    def _test(self, members: list[Checkpoint]) -> dict[str, Any]:
        num_tasks = self.options["num_test_tasks"]
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
            num_steps=self.options["num_test_steps"],
            split="test",
            seed=self.options["seed"],
            device=self.device,
            processes=self.processes,
            on_tasks=lambda done: self._show(
                Progress(self.iteration, self.iteration, work=Work(name, done, total))
            ),
        ).as_dict()
