"""One outer iteration (Eqs. 2 and 6): the gradient of a meta-batch, and a step of Adam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from alfa.config import Experiment
from alfa.data import Tasks
from alfa.errors import DivergedError
from alfa.inner import GB, Learner, MemoryPlan, plan_memory
from alfa.rules import RULES
from alfa.train.adam import Adam
from alfa.train.distributed import Processes
from alfa.train.evaluate import ADVICE, check_finite, seeded


class OuterStep:
    """What an iteration of the outer loop does, on as many processes as there are.

    Args:
        experiment: says how.
        learner: is trained.
        tasks: that it is trained on.
        processes: that share the tasks of an iteration.
        device: where to compute.
        num_sharing: trainings that share the memory of a machine.

    Attributes:
        parameters: that are trained.
        optimizer: of the parameters; None if there are none.
        memory: how an iteration uses memory; `plan` sets it.
        memory_budget: what the experiment said when the plan was made, in GB.
    """

    def __init__(
        self,
        experiment: Experiment,
        learner: Learner,
        tasks: Tasks,
        processes: Processes,
        device: torch.device,
        num_sharing: int = 1,
    ) -> None:
        self.experiment, self.learner, self.tasks = experiment, learner, tasks
        self.processes, self.device, self.num_sharing = processes, device, num_sharing
        # A user's model may have frozen some of its weights.
        self.parameters = [p for p in learner.meta_parameters() if p.requires_grad]
        self.optimizer = self._make_optimizer() if self.parameters else None
        self.memory: MemoryPlan | None = None
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
        return Adam(groups, lr=outer.learning_rate, fused=True)

    def plan(self) -> MemoryPlan:
        """Choose how an iteration uses memory, for tasks as large as they get."""
        engine, count = self.experiment.engine, self.processes.count
        # What is free now may be less than when the run began, but another choice would round
        # differently, and draw other numbers for dropout.
        before = self.memory if engine.memory_budget == self.memory_budget else None
        budget = None if engine.memory_budget is None else int(engine.memory_budget * GB)
        # No more at once than leaves something to do for every process.
        most = -(-self.experiment.outer.num_tasks // count)
        own = 1 if self.device.type == "cuda" else self.processes.local_count

        def chosen() -> dict[str, Any]:
            plan = plan_memory(
                self.learner,
                self.tasks.largest(most).to(self.device, self.learner.dtype),
                memory=engine.memory,
                tasks_at_once=engine.tasks_at_once,
                budget=budget,
                before=before,
                num_sharing=own * self.num_sharing,
            )
            return asdict(plan)

        self.memory = MemoryPlan(**self.processes.from_first(chosen))
        self.memory_budget = engine.memory_budget
        self.learner.memory = self.memory.mode
        return self.memory

    def __call__(self, iteration: int) -> float:
        """One outer iteration; returns the mean query loss.

        Raises:
            DivergedError: a loss or the gradient is not finite, and nothing was changed.
        """
        assert self.optimizer is not None
        # Eqs. 2 and 6, with the mean over tasks in place of the sum
        total = self.processes.sum_in_order(self._rows(iteration))
        loss = float(total[-1])
        self._put(total[:-1].to(self.device))
        if not shortened(self.parameters, self.experiment.outer.max_gradient_norm):
            raise DivergedError(
                f"the outer gradient at iteration {iteration} is not finite, with the rule "
                f"{RULES.name_of(self.learner.rule)}; {ADVICE}"
            )
        self._set_learning_rate(iteration)
        self.optimizer.step()
        return loss

    def _rows(self, iteration: int) -> Iterator[Tensor]:
        """For each stack of this process's tasks, their part of the gradient and of the loss."""
        assert self.memory is not None
        num_tasks, at_once = self.experiment.outer.num_tasks, self.memory.tasks_at_once
        # Stacks are the same for any number of processes.
        own = self.processes.own(-(-num_tasks // at_once))
        begin, end = min(own.start * at_once, num_tasks), min(own.stop * at_once, num_tasks)
        if begin == end:
            return
        groups = self.tasks.groups(
            iteration * num_tasks + begin,
            num_tasks=end - begin,
            split="train",
            seed=self.experiment.seed,
        )
        stacks = [
            (group.indices[first : first + at_once], group.episode[first : first + at_once])
            for group in groups
            for first in range(0, len(group.indices), at_once)
        ]
        # Which tasks are of one size depends on which are looked at; their order does not.
        for indices, tasks in sorted(stacks, key=lambda stack: stack[0][0]):
            episode = tasks.to(self.device, self.learner.dtype)
            with seeded(self.learner.model, self.experiment.seed, iteration, indices[0]):
                outcome = self.learner(episode)
                check_finite(
                    outcome.adapted.support_losses,
                    outcome.query_losses,
                    rule=RULES.name_of(self.learner.rule),
                    where=f"at iteration {iteration}",
                    indices=indices,
                )
                loss = outcome.query_losses.sum() / num_tasks
                grads = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
            yield torch.cat([*(grad.flatten() for grad in grads), loss.detach().reshape(1)])

    def _put(self, gradient: Tensor) -> None:
        """Give every parameter its part of the gradient."""
        parts = gradient.split([p.numel() for p in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype)

    def _set_learning_rate(self, iteration: int) -> None:
        """The rate of this iteration, which depends on nothing else."""
        assert self.optimizer is not None
        outer = self.experiment.outer
        rate = outer.learning_rate * outer.rate_factor ** (iteration // outer.rate_every)
        for group in self.optimizer.param_groups:
            group["lr"] = rate


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
