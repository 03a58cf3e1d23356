"""One outer iteration (Eqs. 2 and 6): the gradient of a meta-batch and an optimizer step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from alfa._distributed import ALONE, Processes
from alfa.errors import DivergedError
from alfa.evaluation import ADVICE, check_finite, seeded
from alfa.learner import GB, Learner, MemoryPlan, plan_memory
from alfa.objectives import Objective
from alfa.rules import RULES

if TYPE_CHECKING:
    from alfa.training._trainer import Trainer


class OuterStep:
    """An outer iteration of a trainer, computed by one or more processes.

    Attributes:
        parameters: the trained parameters.
        plan: how an iteration uses memory; set by `make_plan`.
        planned_budget: the memory budget that the plan was made for.
    """

    def __init__(
        self, trainer: Trainer, *, processes: Processes = ALONE, num_sharing: int = 1
    ) -> None:
        self.trainer, self.learner = trainer, trainer.learner
        self.processes, self.num_sharing = processes, num_sharing
        self.device = torch.device(trainer.device)
        self.objective = trainer.active_objective
        self.parameters = trained_parameters(trainer.learner, self.objective)
        self.plan: MemoryPlan | None = None
        self.planned_budget: float | None = None

    def make_plan(self) -> MemoryPlan:
        """Choose how an iteration uses memory, for the largest possible tasks."""
        # A resumed run keeps its plan even if less memory is free now: another plan would round
        # differently and draw other numbers for dropout.
        wanted = self.trainer.memory_budget
        previous = self.plan if wanted == self.planned_budget else None
        # Leave work for every process.
        most = -(-self.trainer.num_tasks // self.processes.count)
        num_processes = 1 if self.device.type == "cuda" else self.processes.local_count

        def choose() -> dict[str, Any]:
            plan = plan_memory(
                self.learner,
                self.trainer.tasks.largest(most).to(self.device, self.learner.dtype),
                memory=self.trainer.memory,
                tasks_at_once=self.trainer.tasks_at_once,
                budget=None if wanted is None else int(wanted * GB),
                previous=previous,
                num_sharing=num_processes * self.num_sharing,
                runs=[
                    partial(self.objective, progress=progress)
                    for progress in ((0.0, 0.5, 1.0) if self.objective.uses_progress else (0.0,))
                ],
            )
            return asdict(plan)

        self.plan = MemoryPlan(**self.processes.from_first(choose))
        self.planned_budget = wanted
        self.learner.memory = self.plan.mode
        return self.plan

    def __call__(self, iteration: int) -> float:
        """Run one outer iteration and return the mean query loss.

        Raises:
            DivergedError: a loss or the gradient is not finite; nothing was changed.
        """
        optimizer = self.trainer.active_optimizer
        assert optimizer is not None
        # Eqs. 2 and 6, with the mean over tasks instead of the sum
        total = self.processes.sum_in_order(self._rows(iteration))
        loss = float(total[-1])
        gradients = total[:-1].to(self.device).split([p.numel() for p in self.parameters])
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
        if not clip_gradient(self.parameters, self.trainer.max_gradient_norm):
            raise DivergedError(
                f"the outer gradient at iteration {iteration} is not finite, with the rule "
                f"{RULES.name_of(self.learner.rule)}; {ADVICE}"
            )
        optimizer.step()
        return loss

    def advance_schedule(self) -> None:
        """Set the learning rate of the next iteration, also after a skipped one."""
        if self.trainer.scheduler is not None:
            # Without this, torch warns if the first iteration was skipped.
            self.trainer.optimizer._opt_called = True  # type: ignore[union-attr]
            self.trainer.scheduler.step()

    def _rows(self, iteration: int) -> Iterator[Tensor]:
        """Yield the gradient and loss of each stack of this process's tasks, in one row."""
        assert self.plan is not None
        trainer, num_tasks, at_once = self.trainer, self.trainer.num_tasks, self.plan.tasks_at_once
        # The stacks do not depend on the number of processes.
        own = self.processes.own(-(-num_tasks // at_once))
        begin, end = min(own.start * at_once, num_tasks), min(own.stop * at_once, num_tasks)
        if begin == end:
            return
        first_task = iteration * num_tasks + begin
        groups = trainer.tasks.groups(
            first_task, num_tasks=end - begin, split="train", seed=trainer.seed
        )
        stacks = [
            (group.indices[first : first + at_once], group.episode[first : first + at_once])
            for group in groups
            for first in range(0, len(group.indices), at_once)
        ]
        # The order of the groups depends on the tasks in `groups`, the order of the tasks does not.
        for indices, tasks in sorted(stacks, key=lambda stack: stack[0][0]):
            episode = tasks.to(self.device, self.learner.dtype)
            with seeded(self.learner.model, trainer.seed, iteration, indices[0]):
                progress = iteration / trainer.num_iterations
                outcome = self.objective(self.learner, episode, progress=progress)
                check_finite(
                    outcome.adapted.support_losses,
                    outcome.query_losses,
                    rule=RULES.name_of(self.learner.rule),
                    where=f"at iteration {iteration}",
                    indices=indices,
                )
                loss = outcome.losses.sum() / num_tasks
                grads = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
            query_loss = outcome.query_losses.detach().sum() / num_tasks
            yield torch.cat([*(grad.flatten() for grad in grads), query_loss.reshape(1)])


def trained_parameters(learner: Learner, objective: Objective) -> list[nn.Parameter]:
    """Return the meta-parameters, except for frozen ones, and the objective's parameters."""
    return [p for p in (*learner.meta_parameters(), *objective.parameters()) if p.requires_grad]


def clip_gradient(parameters: Sequence[nn.Parameter], limit: float | None) -> bool:
    """Scale a finite gradient down to the norm `limit`, if given; return True if it is finite."""
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    is_finite = bool(norm.isfinite())
    if is_finite and limit is not None:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return is_finite
