"""The outer loop (Eqs. 2 and 6, Algorithm 1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from alfa._distributed import ALONE, Processes
from alfa._runtime import check_device
from alfa.build import describe_experiment
from alfa.data import SPLITS, Tasks
from alfa.errors import ConfigError
from alfa.learner import Learner
from alfa.optim import Adam
from alfa.runs import Checkpoint, Run
from alfa.training._consistency import compare_processes
from alfa.training._loop import TrainingLoop, TrainingOptions, versions
from alfa.training._outer_step import trained_parameters
from alfa.training._progress import OnProgress


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
        >>> small = {"num_iterations": 4, "num_val_tasks": 4, "num_test_tasks": 4}
        >>> trainer = Trainer(learner, Sinusoids(), **small)
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
        self.options = TrainingOptions(
            num_iterations=num_iterations,
            num_tasks=num_tasks,
            max_gradient_norm=max_gradient_norm,
            max_skipped=max_skipped,
            validate_every=validate_every,
            num_val_tasks=num_val_tasks,
            num_test_tasks=num_test_tasks,
            num_test_steps=num_test_steps,
            ensemble=ensemble,
            seed=seed,
            memory=memory,
            tasks_at_once=tasks_at_once,
            memory_budget=memory_budget,
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=checkpoint_seconds,
        )
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
        resume: bool | Literal["auto"] = False,
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
                model may be the best, and the next mean training loss begins there. ``"auto"``
                resumes if the folder holds a run, and starts otherwise.
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
                **asdict(self.options),
            )
            run = Run.new(run, described)
        files = run.files
        resumes = processes.from_first(lambda: files.exists) if resume == "auto" else resume
        training = TrainingLoop(
            self.learner,
            self.tasks,
            self.options,
            run,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            device=self.device,
            processes=processes,
            num_sharing=num_sharing,
            should_stop=should_stop,
            on_progress=on_progress,
        )
        compare_processes(processes, run.config(), self.tasks, versions=versions())
        with ExitStack() as stack:

            def begin() -> Checkpoint:
                if resumes:
                    files.check_exists()
                else:
                    files.check_empty()
                    run.load_initial_weights(self.learner)
                if lock:
                    stack.enter_context(files.lock())
                return training.begin(resume=resumes)

            training.restore(training.shared(begin))
            training.train()
            return training.test(extra or {})


def train_run(
    run: Run, *, device: torch.device | str = "cpu", processes: Processes = ALONE, **options: Any
) -> dict[str, Any]:
    """Train the experiment of a run; `options` are those of `Trainer.fit`."""
    trainer = processes.together(lambda: Trainer.from_run(run, device=device))
    return trainer.fit(run, processes=processes, **options)


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
