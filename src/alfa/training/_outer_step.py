"""One outer iteration (Eqs. 2 and 6): the gradient of a meta-batch, and a step of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from alfa._distributed import Processes
from alfa.data import Tasks
from alfa.errors import DivergedError
from alfa.evaluation import ADVICE, check_finite, seeded
from alfa.learner import GB, Learner, MemoryPlan, plan_memory
from alfa.rules import RULES


class OuterStep:
    """An iteration of the outer loop, shared by one or more processes.

    Args:
        learner: is trained.
        tasks: the training tasks.
        optimizer: of the learner's meta-parameters; None if there are none to train.
        scheduler: of the optimizer's learning rate.
        num_tasks: tasks of an iteration.
        max_gradient_norm: a longer gradient is scaled down to it.
        seed: decides the tasks.
        device: where to compute.
        memory: ``"store"``, ``"recompute"``, or ``"auto"``.
        tasks_at_once: tasks whose outer gradients are computed together; None for automatic.
        memory_budget: in GB; None for most of the free memory.
        processes: the processes that share the tasks of an iteration.
        num_sharing: trainings that share the memory of the machine.

    Attributes:
        parameters: the trained parameters.
        plan: how an iteration uses memory; `make_plan` sets it.
        planned_budget: the budget that the plan was made for.
    """

    def __init__(
        self,
        learner: Learner,
        tasks: Tasks,
        *,
        optimizer: torch.optim.Optimizer | None,
        scheduler: LRScheduler | None,
        num_tasks: int,
        max_gradient_norm: float | None,
        seed: int,
        device: torch.device,
        memory: Literal["auto", "store", "recompute"],
        tasks_at_once: int | None,
        memory_budget: float | None,
        processes: Processes,
        num_sharing: int,
    ) -> None:
        self.learner, self.tasks = learner, tasks
        self.optimizer, self.scheduler = optimizer, scheduler
        self.num_tasks, self.max_gradient_norm = num_tasks, max_gradient_norm
        self.seed, self.device = seed, device
        self.memory, self.tasks_at_once = memory, tasks_at_once
        self.memory_budget = memory_budget
        self.processes, self.num_sharing = processes, num_sharing
        self.parameters = trained_parameters(learner)
        self.plan: MemoryPlan | None = None
        self.planned_budget: float | None = None

    def make_plan(self) -> MemoryPlan:
        """Choose how an iteration uses memory, for tasks as large as they get."""
        # What is free now may be less than when the run began, but another choice would round
        # differently, and draw other numbers for dropout.
        before = self.plan if self.memory_budget == self.planned_budget else None
        budget = None if self.memory_budget is None else int(self.memory_budget * GB)
        # No more at once than leaves something to do for every process.
        most = -(-self.num_tasks // self.processes.count)
        own = 1 if self.device.type == "cuda" else self.processes.local_count

        def chosen() -> dict[str, Any]:
            plan = plan_memory(
                self.learner,
                self.tasks.largest(most).to(self.device, self.learner.dtype),
                memory=self.memory,
                tasks_at_once=self.tasks_at_once,
                budget=budget,
                previous=before,
                num_sharing=own * self.num_sharing,
            )
            return asdict(plan)

        self.plan = MemoryPlan(**self.processes.from_first(chosen))
        self.planned_budget = self.memory_budget
        self.learner.memory = self.plan.mode
        return self.plan

    def __call__(self, iteration: int) -> float:
        """One outer iteration; returns the mean query loss.

        Raises:
            DivergedError: a loss or the gradient is not finite, and nothing was changed.
        """
        assert self.optimizer is not None
        # Eqs. 2 and 6, with the mean over tasks in place of the sum
        total = self.processes.sum_in_order(self._rows(iteration))
        loss = float(total[-1])
        self._set_gradients(total[:-1].to(self.device))
        if not clip_gradient(self.parameters, self.max_gradient_norm):
            raise DivergedError(
                f"the outer gradient at iteration {iteration} is not finite, with the rule "
                f"{RULES.name_of(self.learner.rule)}; {ADVICE}"
            )
        self.optimizer.step()
        return loss

    def advance_schedule(self) -> None:
        """Set the learning rate of the next iteration, also after one that was skipped."""
        if self.scheduler is not None:
            # Otherwise torch warns if the first iteration was skipped.
            self.optimizer._opt_called = True  # type: ignore[union-attr]
            self.scheduler.step()

    def _rows(self, iteration: int) -> Iterator[Tensor]:
        """For each stack of this process's tasks, their part of the gradient and of the loss."""
        assert self.plan is not None
        num_tasks, at_once = self.num_tasks, self.plan.tasks_at_once
        # Stacks are the same for any number of processes.
        own = self.processes.own(-(-num_tasks // at_once))
        begin, end = min(own.start * at_once, num_tasks), min(own.stop * at_once, num_tasks)
        if begin == end:
            return
        groups = self.tasks.groups(
            iteration * num_tasks + begin,
            num_tasks=end - begin,
            split="train",
            seed=self.seed,
        )
        stacks = [
            (group.indices[first : first + at_once], group.episode[first : first + at_once])
            for group in groups
            for first in range(0, len(group.indices), at_once)
        ]
        # Which tasks are of one size depends on which are looked at; their order does not.
        for indices, tasks in sorted(stacks, key=lambda stack: stack[0][0]):
            episode = tasks.to(self.device, self.learner.dtype)
            with seeded(self.learner.model, self.seed, iteration, indices[0]):
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

    def _set_gradients(self, gradient: Tensor) -> None:
        parts = gradient.split([p.numel() for p in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype)


def trained_parameters(learner: Learner) -> list[nn.Parameter]:
    """The parameters that the outer loop trains; a user's model may have frozen some."""
    return [p for p in learner.meta_parameters() if p.requires_grad]


def clip_gradient(parameters: Sequence[nn.Parameter], limit: float | None) -> bool:
    """Scale a gradient down to a limit on its length, if there is one.

    Returns:
        Whether it was finite; otherwise it stays as it is.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    is_finite = bool(norm.isfinite())
    if is_finite and limit is not None:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return is_finite
