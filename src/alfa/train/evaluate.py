"""Evaluation: adaptation without any graph, on tasks that were never trained on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from alfa.data import Split, Tasks
from alfa.errors import DivergedError
from alfa.inner import Learner
from alfa.inner.memory import RandomState
from alfa.models import BatchNorm, Model
from alfa.rules import RULES
from alfa.train.peak import PeakMemory

ADVICE = (
    "a smaller learning rate, inner or outer, usually helps, and outer.max_skipped lets training "
    "pass over a few such iterations."
)

# Tasks that are adapted at once, and the memory they may take together; more save nothing.
_MOST_TASKS = 100
_MOST_BYTES = 2**29


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        loss: the mean query loss over tasks.
        interval: half the width of the 95 % confidence interval of that mean; None for one task.
        num_tasks: how many tasks it was taken over.
        num_steps: inner steps.
        split: which tasks they were.
        seed: with `split`, decides the tasks.
        batch_norm: whether queries were normalised by their own statistics (transductive) or by
            those of the support set (inductive); None for a model without batch norm.
    """

    loss: float
    interval: float | None
    num_tasks: int
    num_steps: int
    split: Split
    seed: int
    batch_norm: BatchNorm | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(
    learner: Learner,
    tasks: Tasks,
    *,
    num_tasks: int = 600,
    num_steps: int | None = None,
    split: Split = "test",
    seed: int = 0,
    device: torch.device | str = "cpu",
    where: str | None = None,
) -> Evaluation:
    """Adapt to every task and average the query losses.

    Args:
        learner: what to evaluate.
        tasks: where the tasks come from.
        num_tasks: how many.
        num_steps: inner steps; by default the learner's.
        split: of which part of the tasks.
        seed: with `split`, decides the tasks.
        device: where to compute.
        where: what an error calls this evaluation.

    Raises:
        DivergedError: a loss is not finite; names the task and the step.
    """
    losses: list[Tensor] = []
    first, at_once = 0, 1
    while first < num_tasks:
        count = min(at_once, num_tasks - first)
        episode = tasks.episode(first, num_tasks=count, split=split, seed=seed)
        # The first task makes what is made only once; the second says how much every other takes.
        peak = PeakMemory() if first == 1 else None
        with without_dropout(learner.model), peak or nullcontext():
            outcome = learner(episode.to(device), num_steps=num_steps, order="none")
        if peak is not None:
            at_once = max(1, min(_MOST_TASKS, _MOST_BYTES // max(peak.bytes, 1)))
        check_finite(
            outcome.adapted.support_losses,
            outcome.query_losses,
            rule=RULES.name_of(learner.rule),
            where=where or f"in the evaluation on {split} tasks",
            first_task=first,
        )
        losses.append(outcome.query_losses)
        first += count
    values = torch.cat(losses).double().cpu()
    interval = None
    if len(values) > 1:
        interval = 1.96 * float(values.std(correction=1)) / math.sqrt(len(values))
    return Evaluation(
        loss=float(values.mean()),
        interval=interval,
        num_tasks=num_tasks,
        num_steps=learner.num_steps if num_steps is None else num_steps,
        split=split,
        seed=seed,
        batch_norm=learner.batch_norm if has_batch_norm(learner.model) else None,
    )


def has_batch_norm(model: nn.Module) -> bool:
    """Whether what the model says of one example depends on the others."""
    if isinstance(model, Model):
        return model.has_batch_norm
    return any(isinstance(module, _BatchNorm) for module in model.modules())


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Dropout off, and all else as in training: normalisation keeps using the set at hand."""
    active = [m for m in model.modules() if isinstance(m, _DropoutNd) and m.training]
    for module in active:
        module.eval()
    try:
        yield
    finally:
        for module in active:
            module.train()


@contextlib.contextmanager
def seeded(model: nn.Module, seed: int, iteration: int) -> Iterator[None]:
    """Make what a model with dropout draws a function of the seed and the iteration."""
    if not any(isinstance(module, _DropoutNd) for module in model.modules()):
        yield
        return
    with RandomState(next(model.parameters()).device).again():
        torch.manual_seed(int(np.random.SeedSequence([seed, iteration]).generate_state(1)[0]))
        yield


def check_finite(
    support_losses: Tensor, query_losses: Tensor, *, rule: str, where: str, first_task: int = 0
) -> None:
    """Raise if a loss is not finite.

    Args:
        support_losses: ``[step, task]``.
        query_losses: ``[task]``.
        rule: its name.
        where: in what work this happened.
        first_task: the number of the first of these tasks.

    Raises:
        DivergedError: names rule, task and step.
    """
    losses = torch.cat([support_losses.detach(), query_losses.detach().unsqueeze(0)])
    finite = losses.isfinite()
    if bool(finite.all()):
        return
    step, task = (int(index) for index in (~finite).nonzero()[0])
    last = step == len(support_losses)
    what = "the query loss after the last step" if last else f"the support loss at step {step + 1}"
    raise DivergedError(
        f"{what} of task {first_task + task} is {float(losses[step, task])} {where}, with the "
        f"rule {rule}; {ADVICE}"
    )
