"""The outer loop (Eqs. 2 and 6, Algorithm 1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from alfa._distributed import ALONE, Processes
from alfa._runtime import check_device
from alfa.build import describe_experiment
from alfa.data import SPLITS, Tasks
from alfa.errors import ConfigError
from alfa.learner import Learner
from alfa.objectives import Objective, QueryLoss
from alfa.optim import Adam
from alfa.runs import Run
from alfa.training._consistency import compare_processes
from alfa.training._final_test import FinalTest
from alfa.training._loop import OnProgress, TrainingLoop
from alfa.training._outer_step import trained_parameters
from alfa.training._pretrain import check_pretraining


@dataclass(eq=False, repr=False)
class Trainer:
    """A trainer that trains a learner in a run folder, then tests its best model.

    Args:
        learner: the learner to train.
        tasks: the tasks, with the splits ``"train"``, ``"val"``, and ``"test"``.
        objective: the loss of the outer loop; by default the query loss after the last inner step.
        optimizer: any optimizer of the learner's meta-parameters; by default Adam with a learning
            rate of 0.001.
        scheduler: any scheduler of the optimizer that is stepped once per iteration; by default
            the learning rate is constant.
        num_iterations: number of outer iterations.
        num_tasks: number of tasks of an outer iteration.
        max_gradient_norm: the outer gradient is scaled down to this norm if it is longer.
        max_skipped: number of non-finite iterations or validations that are skipped.
        validate_every: outer iterations of an epoch, after which the learner is validated.
        validate_start: whether to validate the untrained learner, too. It can then be the best
            model, and the result contains the gain of the best model over it.
        num_val_tasks: number of validation tasks.
        num_test_tasks: number of test tasks.
        num_test_steps: inner steps in validation and test; by default as in training.
        ensemble: number of best epochs whose models are also tested together.
        seed: seed of the tasks and all other random numbers.
        device: the device to compute on.
        memory: ``"store"`` keeps the inner steps for the outer gradient, ``"recompute"`` repeats
            them, and ``"auto"`` chooses by the memory budget.
        tasks_at_once: tasks whose outer gradients are computed together; None for automatic.
        memory_budget: in GB; None for most of the free memory.
        checkpoint_every: outer iterations between two checkpoints; None for none.
        checkpoint_seconds: seconds between two checkpoints.

    Examples:
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

    learner: Learner
    tasks: Tasks
    _: KW_ONLY
    objective: Objective | None = None
    optimizer: Optimizer | None = None
    scheduler: LRScheduler | None = None
    num_iterations: int = 50_000
    num_tasks: int = 4
    max_gradient_norm: float | None = None
    max_skipped: int = 0
    validate_every: int = 500
    validate_start: bool = False
    num_val_tasks: int = 600
    num_test_tasks: int = 600
    num_test_steps: int | None = None
    ensemble: int = 5
    seed: int = 0
    device: torch.device | str = "cpu"
    memory: Literal["auto", "store", "recompute"] = "auto"
    tasks_at_once: int | None = None
    memory_budget: float | None = None
    checkpoint_every: int | None = None
    checkpoint_seconds: float = 120.0

    def __post_init__(self) -> None:
        check_device(self.device, name="`device`")
        self.learner.to(self.device)
        # The objective in use; `objective` stays None, so that the run records the default.
        self.active_objective = QueryLoss() if self.objective is None else self.objective
        self.active_objective.to(self.device, self.learner.dtype)
        parameters = trained_parameters(self.learner, self.active_objective)
        if self.optimizer is not None:
            _check_optimizer(self.optimizer, self.scheduler, parameters)
        elif self.scheduler is not None:
            raise ConfigError("`scheduler` needs its `optimizer`; pass both.")
        default = Adam(parameters, lr=0.001, fused=True) if parameters else None
        # The optimizer in use; `optimizer` stays None, so that the run records the default.
        self.active_optimizer = default if self.optimizer is None else self.optimizer

    @classmethod
    def from_run(cls, run: Run, *, device: torch.device | str = "cpu") -> Trainer:
        """Return a trainer of the experiment of a run, such as ``Run.new(path, experiment)``."""
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
            run: the folder; only the first process needs access to it.
            resume: continue from the folder's last checkpoint, to the same numbers as an
                uninterrupted run. A run that is resumed with more iterations equals the longer run
                except for a validation at its earlier end, whose model may be the best and after
                which the next mean training loss starts. ``"auto"`` resumes if the folder holds a
                run, and starts otherwise.
            lock: lock the folder; False if the caller has locked it.
            processes: the processes that train together.
            num_sharing: trainings that share the memory of this machine.
            extra: additional entries of the result.
            should_stop: called after every iteration and every few tasks of an evaluation.
            on_progress: called after every iteration.

        Returns:
            The content of ``result.json``.

        Raises:
            CheckpointError: the folder cannot be used, or holds nothing to resume.
            DataError: the data differs from the data that the run was trained on.
            DivergedError: a loss or gradient is not finite; the last good checkpoint is kept.
            LostError: another process has ended; progress is saved.
            Stopped: `should_stop` returned True; progress is saved.
        """
        # Check before anything is written: invalid objects leave no folder.
        self.tasks.check(*SPLITS)
        if not isinstance(run, Run):
            run = Run.new(run, describe_experiment(**vars(self)))
        if run.pretraining is not None:
            check_pretraining(run, self.tasks, run.pretraining)
        files = run.files
        resumes = processes.from_first(lambda: files.exists) if resume == "auto" else resume
        loop = TrainingLoop(self, run, processes, num_sharing, should_stop, on_progress)
        compare_processes(processes, run.config(), self.tasks)
        with ExitStack() as stack:
            locks = stack if lock else None
            loop.restore(loop.from_first(lambda: loop.begin(locks, resume=resumes)))
            loop.prepare()
            loop.pretrain()
            loop.train()
            return FinalTest(loop).run(extra or {})


def train_run(
    run: Run, *, device: torch.device | str = "cpu", processes: Processes = ALONE, **options: Any
) -> dict[str, Any]:
    """Train the experiment of a run; `options` are the options of `Trainer.fit`."""
    trainer = processes.together(lambda: Trainer.from_run(run, device=device))
    return trainer.fit(run, processes=processes, **options)


def _check_optimizer(
    optimizer: Optimizer, scheduler: LRScheduler | None, parameters: list[torch.nn.Parameter]
) -> None:
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if missing := [p for p in parameters if id(p) not in trained]:
        raise ConfigError(
            f"`optimizer` lacks {len(missing)} of the {len(parameters)} meta-parameters of the "
            "learner and the objective; make it with learner.meta_parameters() and, if `objective` "
            "has any, objective.parameters()."
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
                f"`scheduler` has a state that a checkpoint cannot store: {error}."
            ) from None
