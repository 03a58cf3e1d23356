"""The outer loop (Eqs. 2 and 6, Algorithm 1)."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import alfa
from alfa.build import build_learner, build_tasks
from alfa.config import Experiment, to_dict
from alfa.data import SPLITS, Group
from alfa.errors import CheckpointError, ConfigError, DivergedError
from alfa.inner import GB, MemoryPlan, plan_memory
from alfa.models import Model
from alfa.rules import RULES
from alfa.train.best import Best
from alfa.train.checkpoint import Checkpoint
from alfa.train.evaluate import ADVICE, Evaluation, check_finite, evaluate, seeded
from alfa.train.run import Run
from alfa.train.weights import load_backbone


class Work(NamedTuple):
    """What is done beside the iterations, such as the tasks of a validation or a test."""

    what: str
    done: int
    total: int
    unit: str = "tasks"


# An epoch of large images takes long; a run that is killed loses no more than this.
_SECONDS_PER_CHECKPOINT = 120.0


@dataclass(frozen=True)
class Progress:
    """Where training stands, for whoever shows it.

    Attributes:
        iteration: outer iterations done.
        num_iterations: how many there will be.
        record: the newest line of the metrics, if one was written just now.
        message: something to tell the user.
        work: what is being done beside the iterations, if anything.
    """

    iteration: int
    num_iterations: int
    record: dict[str, Any] | None = None
    message: str | None = None
    work: Work | None = None


OnProgress = Callable[[Progress], None]


def train(
    experiment: Experiment,
    path: Path,
    *,
    resume: bool = False,
    device: torch.device | str = "cpu",
    lock: bool = True,
    on_progress: OnProgress = lambda progress: None,
) -> dict[str, Any]:
    """Train an experiment in a run folder, then test its best model.

    Args:
        experiment: what to train.
        path: the run folder.
        resume: go on from the folder's last checkpoint, to the same numbers as an unbroken run.
        device: where to compute.
        lock: keep other processes from the folder; not if the caller does so already.
        on_progress: called after every iteration.

    Returns:
        The content of ``result.json``.

    Raises:
        CheckpointError: the folder cannot be used, or there is nothing to resume.
        DivergedError: a loss or gradient is not finite; the last good checkpoint is kept.
    """
    # Built first: what cannot be built leaves no folder behind.
    run = Run(path)
    trainer = _Trainer(experiment, run, device, on_progress)
    run.check(resume=resume)
    if not resume:
        trainer.load_weights()
    with run.lock() if lock else nullcontext():
        trainer.prepare(resume=resume)
        trainer.train()
        return trainer.test()


def shortened(parameters: Sequence[nn.Parameter], limit: float | None) -> bool:
    """Scale an outer gradient down to a limit on its length, if there is one.

    Returns:
        Whether it was finite; otherwise it stays as it is.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    is_finite = bool(norm.isfinite())
    if is_finite and limit is not None:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return is_finite


class _Trainer:
    def __init__(
        self, experiment: Experiment, run: Run, device: torch.device | str, on_progress: OnProgress
    ) -> None:
        self.experiment, self.run, self.device = experiment, run, torch.device(device)
        self.on_progress = on_progress
        self.tasks = build_tasks(experiment)
        self.tasks.check(*SPLITS)
        self.learner = build_learner(experiment, self.tasks).to(self.device)
        self.parameters = list(self.learner.meta_parameters())
        self.optimizer = self._make_optimizer() if self.parameters else None
        self.iteration = 0
        self.best = Best()
        self.seconds = 0.0
        self.skipped = 0
        # The losses since the last validation.
        self.window: list[float] = []
        self.memory: MemoryPlan | None = None
        # What the experiment said when the plan was made, in GB.
        self.memory_budget: float | None = None

    def _make_optimizer(self) -> torch.optim.Optimizer:
        outer = self.experiment.outer
        decayed = {id(p) for p in self.learner.init.meta_parameters() if p.ndim > 1}
        groups: list[dict[str, Any]] = [{"params": self.parameters}]
        if outer.weight_decay:
            groups = [
                {
                    "params": [p for p in self.parameters if (id(p) in decayed) == is_decayed],
                    "weight_decay": outer.weight_decay if is_decayed else 0.0,
                }
                for is_decayed in (True, False)
            ]
        return torch.optim.Adam(groups, lr=outer.learning_rate, fused=True)

    def _set_learning_rate(self) -> None:
        """The rate of this iteration, which depends on nothing else."""
        assert self.optimizer is not None
        outer = self.experiment.outer
        rate = outer.learning_rate * outer.rate_factor ** (self.iteration // outer.rate_every)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def prepare(self, *, resume: bool) -> None:
        if not resume:
            self.run.create(self.experiment)
            self.run.write_signature(self.tasks.signature())
            return
        if not self.run.checkpoint("last").is_file():
            # Killed before the first checkpoint: the beginning is where it goes on from.
            if self.run.experiment().fingerprint() != self.experiment.fingerprint():
                raise CheckpointError(f"{self.run.path} is a run of another experiment.")
            self.load_weights()
            self.run.rewind_metrics(-1)
            self.run.write_config(self.experiment)
            self.run.write_signature(self.tasks.signature())
            return
        checkpoint = self.run.load_checkpoint("last", self.experiment)
        checkpoint.restore(self.learner, self.optimizer)
        self.iteration = checkpoint.progress["iteration"]
        wanted = self.experiment.outer.num_iterations
        if self.iteration > wanted:
            raise CheckpointError(
                f"{self.run.path} has done {self.iteration} iterations already, more than the "
                f"{wanted} asked for by outer.num_iterations."
            )
        if self.iteration < wanted:
            # A result of the shorter training would pass for that of the longer one.
            self.run.set_result_aside()
        self.best = Best.from_progress(checkpoint.progress)
        self.run.keep_members(self.best.iterations)
        self.seconds = checkpoint.progress["seconds"]
        self.skipped = checkpoint.progress.get("skipped", 0)
        self.window = checkpoint.progress.get("window", [])
        # Older checkpoints have no plan.
        if (plan := checkpoint.progress.get("memory")) is not None:
            self.memory = MemoryPlan(**plan)
            self.memory_budget = checkpoint.progress["memory_budget"]
        self.run.rewind_metrics(self.iteration)
        self.run.write_config(self.experiment)

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
        outer = self.experiment.outer
        # A fixed init with a rule that has no parameters has nothing to train.
        num_iterations = outer.num_iterations if self.parameters else 0
        if num_iterations == 0 and not self.run.checkpoint("last").is_file():
            self._validate()
        if self.iteration < num_iterations:
            self.memory = self._plan_memory()
            self.on_progress(Progress(self.iteration, num_iterations, message=str(self.memory)))
        saved = time.perf_counter()
        while self.iteration < num_iterations:
            began = time.perf_counter()
            try:
                self.window.append(self._step())
            except DivergedError as error:
                self._skip(error)
            self.iteration += 1
            self.seconds += time.perf_counter() - began
            record = None
            if self.iteration % outer.validate_every == 0 or self.iteration == num_iterations:
                record = self._validate()
                saved = time.perf_counter()
            elif time.perf_counter() - saved > _SECONDS_PER_CHECKPOINT:
                self._checkpoint(self.optimizer).save(self.run.checkpoint("last"))
                saved = time.perf_counter()
            self.on_progress(Progress(self.iteration, num_iterations, record))

    def _skip(self, error: DivergedError) -> None:
        """Pass over what is not finite, as often as the experiment allows."""
        if self.skipped >= self.experiment.outer.max_skipped:
            raise error
        self.skipped += 1

    def _plan_memory(self) -> MemoryPlan:
        """Choose how an iteration uses memory, for tasks as large as they get."""
        engine = self.experiment.engine
        # What is free now may be less than when the run began, but another choice would round
        # differently, and draw other numbers for dropout.
        before = self.memory if engine.memory_budget == self.memory_budget else None
        budget = None if engine.memory_budget is None else int(engine.memory_budget * GB)
        plan = plan_memory(
            self.learner,
            self.tasks.largest(self.experiment.outer.num_tasks).to(self.device),
            memory=engine.memory,
            tasks_at_once=engine.tasks_at_once,
            budget=budget,
            before=before,
        )
        self.learner.memory, self.memory_budget = plan.mode, engine.memory_budget
        return plan

    def _groups(self) -> list[Group]:
        """The tasks of this iteration, a stack for each size that they have."""
        num_tasks = self.experiment.outer.num_tasks
        first = self.iteration * num_tasks
        return self.tasks.groups(
            first, num_tasks=num_tasks, split="train", seed=self.experiment.seed
        )

    def _step(self) -> float:
        """One outer iteration; returns the mean query loss."""
        assert self.optimizer is not None
        assert self.memory is not None
        self.optimizer.zero_grad()
        groups = self._groups()
        at_once = self.memory.tasks_at_once
        parts = [
            (group.indices[first : first + at_once], group.episode[first : first + at_once])
            for group in groups
            for first in range(0, len(group.indices), at_once)
        ]
        total = 0.0
        with seeded(self.learner.model, self.experiment.seed, self.iteration):
            for indices, episode in parts:
                outcome = self.learner(episode.to(self.device))
                check_finite(
                    outcome.adapted.support_losses,
                    outcome.query_losses,
                    rule=RULES.name_of(self.learner.rule),
                    where=f"at iteration {self.iteration}",
                    indices=indices,
                )
                # Eqs. 2 and 6, with the mean over tasks in place of the sum
                loss = outcome.query_losses.sum() / self.experiment.outer.num_tasks
                loss.backward()
                total += float(loss.detach())
        self._check_gradient()
        self._set_learning_rate()
        self.optimizer.step()
        return total

    def _check_gradient(self) -> None:
        """Refuse an outer gradient that is not finite, and shorten one that is too long."""
        if not shortened(self.parameters, self.experiment.outer.max_gradient_norm):
            raise DivergedError(
                f"the outer gradient at iteration {self.iteration} is not finite, with the rule "
                f"{RULES.name_of(self.learner.rule)}; {ADVICE}"
            )

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
                on_tasks=self._show_validation,
            )
        except DivergedError as error:
            self._skip(error)
        record: dict[str, Any] = {"iteration": self.iteration}
        if self.window:
            record["train_loss"] = sum(self.window) / len(self.window)
            self.window = []
        record["val_loss"] = None if found is None else found.loss
        if found is not None and found.accuracy is not None:
            record["val_accuracy"] = found.accuracy
        if self.skipped:
            record["skipped"] = self.skipped
        # The metrics come first: a record without its checkpoint is forgotten on resume.
        self.run.append_metrics(record)
        if found is not None:
            self._keep(found)
        self._checkpoint(self.optimizer).save(self.run.checkpoint("last"))
        # Only now does nothing refer to the members that others have replaced.
        self.run.keep_members(self.best.iterations)
        return record

    def _show_validation(self, done: int) -> None:
        outer = self.experiment.outer
        work = Work("validating", done, outer.num_val_tasks)
        self.on_progress(Progress(self.iteration, outer.num_iterations, work=work))

    def _keep(self, found: Evaluation) -> None:
        """Keep the state if it is one of the best."""
        num_members = self.experiment.test.ensemble
        best, is_first = self.best.with_epoch(self.iteration, found, num_members=num_members)
        if self.iteration in best.iterations and num_members > 1:
            self._checkpoint(None).save(self.run.member(self.iteration))
        if is_first:
            self._checkpoint(None).save(self.run.checkpoint("best"))
        self.best = best

    def _checkpoint(self, optimizer: torch.optim.Optimizer | None) -> Checkpoint:
        return Checkpoint.of(
            self.learner,
            optimizer,
            fingerprint=self.experiment.fingerprint(),
            progress={
                "iteration": self.iteration,
                **self.best.as_progress(),
                "seconds": self.seconds,
                "skipped": self.skipped,
                "window": self.window,
                "memory": None if self.memory is None else asdict(self.memory),
                "memory_budget": self.memory_budget,
            },
        )

    def test(self) -> dict[str, Any]:
        """Test the model that was best in validation, and the best ones together."""
        if not self.best.epochs:
            raise DivergedError(
                f"no validation of {self.run.path} was finite, so there is no best model to test; "
                f"{ADVICE}"
            )
        results = {"test": self._tested([self.run.load_checkpoint("best", self.experiment)])}
        members = self.run.load_members(self.best.iterations, self.experiment)
        if len(members) > 1:
            results["ensemble"] = {
                **self._tested(members),
                "iterations": sorted(self.best.iterations),
            }
        first = self.best.epochs[0]
        result = {
            **results,
            "best_iteration": first.iteration,
            "val_loss": first.loss,
            **({} if first.accuracy is None else {"val_accuracy": first.accuracy}),
            "num_iterations": self.iteration,
            "skipped": self.skipped,
            "num_meta_parameters": sum(p.numel() for p in self.parameters),
            "seconds": round(self.seconds, 2),
            "engine": {
                "memory": None if self.memory is None else self.memory.mode,
                "tasks_at_once": None if self.memory is None else self.memory.tasks_at_once,
            },
            "versions": {
                "alfa": alfa.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "config": to_dict(self.experiment),
        }
        self.run.write_result(result)
        return result

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
            on_tasks=lambda done: self.on_progress(
                Progress(self.iteration, self.iteration, work=Work(what, done, total))
            ),
        ).as_dict()
