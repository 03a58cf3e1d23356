"""Evaluation: adaptation without any graph, on tasks that were never trained on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from alfa.data import Signature, Split, Tasks
from alfa.errors import ConfigError, DivergedError
from alfa.inner import Learner
from alfa.inner.memory import RandomState
from alfa.models import BatchNorm, Model, is_by_batch, switch_off_dropout
from alfa.ops import Loss
from alfa.rules import RULES
from alfa.train.checkpoint import Checkpoint
from alfa.train.distributed import ALONE, Processes
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
        accuracy: the mean over tasks of the part of the queries that are classified right; None
            for regression.
        accuracy_interval: half the width of its 95 % confidence interval.
        num_tasks: how many tasks it was taken over.
        num_steps: inner steps.
        split: which tasks they were.
        seed: with `split`, decides the tasks.
        batch_norm: whether queries were normalised by their own statistics (transductive) or by
            those of the support set (inductive); None for a model without batch norm.
        num_models: models whose outputs were averaged.
        per_task: the accuracy on each task, or the loss where there is none.
    """

    loss: float
    interval: float | None
    accuracy: float | None
    accuracy_interval: float | None
    num_tasks: int
    num_steps: int
    split: Split
    seed: int
    batch_norm: BatchNorm | None
    num_models: int = 1
    per_task: tuple[float, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """All but the figures of single tasks."""
        content = asdict(self)
        del content["per_task"]
        return content

    @property
    def score(self) -> float:
        """What validation compares, the larger the better."""
        return -self.loss if self.accuracy is None else self.accuracy


OnTasks = Callable[[int], None]


def evaluate(
    learner: Learner,
    tasks: Tasks,
    *,
    members: Sequence[Checkpoint] = (),
    num_tasks: int = 600,
    num_steps: int | None = None,
    split: Split = "test",
    seed: int = 0,
    device: torch.device | str = "cpu",
    where: str | None = None,
    processes: Processes = ALONE,
    on_tasks: OnTasks = lambda done: None,
) -> Evaluation:
    """Adapt to every task, and judge the adapted models on its queries.

    Args:
        learner: what to evaluate; with `members`, it ends as the last of them.
        tasks: where the tasks come from.
        members: checkpoints of the learner, the mean of whose outputs is judged.
        num_tasks: how many.
        num_steps: inner steps; by default the learner's.
        split: of which part of the tasks.
        seed: with `split`, decides the tasks.
        device: where to compute.
        where: what an error calls this evaluation.
        processes: that share the tasks.
        on_tasks: called with the number of tasks done so far, over all members.

    Raises:
        DivergedError: a loss is not finite; names the task and the step.
    """
    own = processes.own(num_tasks)

    def judged() -> Tensor:
        total = _over_members(
            learner,
            tasks,
            members,
            own,
            num_steps=num_steps,
            split=split,
            seed=seed,
            device=device,
            where=where or f"in the evaluation on {split} tasks",
            # What the others have done meanwhile is about the same.
            on_tasks=lambda done: on_tasks(done * num_tasks // len(own)),
        )
        return total.figures(learner.loss, num_models, classified=classified)

    num_models, classified = max(1, len(members)), tasks.loss == "cross_entropy"
    figures = processes.concatenated(judged)
    loss, interval = mean_and_interval(figures[:, 0])
    accuracy, accuracy_interval = mean_and_interval(figures[:, 1]) if classified else (None, None)
    return Evaluation(
        loss=loss,
        interval=interval,
        accuracy=accuracy,
        accuracy_interval=accuracy_interval,
        num_tasks=num_tasks,
        num_steps=learner.num_steps if num_steps is None else num_steps,
        split=split,
        seed=seed,
        batch_norm=learner.batch_norm if has_batch_norm(learner.model) else None,
        num_models=num_models,
        per_task=tuple(figures[:, 1 if classified else 0].tolist()),
    )


@dataclass(frozen=True)
class _Part:
    """Tasks of one size: which, the outputs and targets of their queries, and losses ``[task]``."""

    indices: tuple[int, ...]
    outputs: Tensor
    targets: Tensor
    losses: Tensor


@dataclass(frozen=True)
class _Judged:
    """What one or more models say of the queries of every task.

    Attributes:
        parts: tasks by their size, with the sum of the outputs of all models, and the losses of
            the first one.
    """

    parts: tuple[_Part, ...]

    def plus(self, other: _Judged) -> _Judged:
        """The sum of the outputs of two models on the same tasks."""
        pairs = zip(self.parts, other.parts, strict=True)
        return _Judged(tuple(replace(a, outputs=a.outputs + b.outputs) for a, b in pairs))

    def figures(self, loss: Loss, num_models: int, *, classified: bool) -> Tensor:
        """Of the mean of the outputs: each task's loss and, if classified, accuracy, ``[task, 1
        or 2]``."""
        if not self.parts:
            return torch.empty(0, 1 + classified, dtype=torch.float64)
        found = [self._losses(loss, num_models), *([self._accuracies()] if classified else [])]
        return torch.stack(found, dim=1)

    def _losses(self, loss: Loss, num_models: int) -> Tensor:
        if num_models == 1:
            return self._in_order([part.losses for part in self.parts])
        return self._in_order([loss(p.outputs / num_models, p.targets) for p in self.parts])

    def _accuracies(self) -> Tensor:
        """The part of each task's queries that are classified right, ``[task]``."""
        right = [(p.outputs.argmax(-1) == p.targets).cpu().double() for p in self.parts]
        # An example may have several places that are classified, such as pixels.
        return self._in_order([of_part.flatten(1).mean(1) for of_part in right])

    def _in_order(self, values: list[Tensor]) -> Tensor:
        indices = torch.tensor([index for part in self.parts for index in part.indices])
        return torch.cat(values).cpu().double()[indices.argsort()]


def _over_members(
    learner: Learner,
    tasks: Tasks,
    members: Sequence[Checkpoint],
    own: range,
    *,
    on_tasks: OnTasks,
    **options: Any,
) -> _Judged:
    """What all members together say of some of the tasks."""
    total = _Judged(())
    # One at a time for tasks that differ in size; otherwise the first member tells.
    at_once = 1 if tasks.varies else None
    for number, member in enumerate(members or (None,)):
        if member is not None:
            member.restore(learner)

        def on_more(count: int, before: int = number * len(own)) -> None:
            on_tasks(before + count)

        judged, at_once = _judged(learner, tasks, own, at_once=at_once, on_tasks=on_more, **options)
        total = total.plus(judged) if number else judged
    return total


def _judged(
    learner: Learner,
    tasks: Tasks,
    own: range,
    *,
    num_steps: int | None,
    split: Split,
    seed: int,
    device: torch.device | str,
    where: str,
    at_once: int | None,
    on_tasks: OnTasks,
) -> tuple[_Judged, int | None]:
    """Adapt to some of the tasks without any graph; also says how many were adapted to at once."""
    parts: list[_Part] = []
    done = 0
    while done < len(own):
        # Alone, the first task makes what is made only once; the second says how much others take.
        count = 1 if done < 2 else min(at_once or 1, len(own) - done)
        for group in tasks.groups(own.start + done, num_tasks=count, split=split, seed=seed):
            episode = group.episode.to(device, learner.dtype)
            peak = PeakMemory() if done == 1 and at_once is None else None
            drawn = seeded(learner.model, seed, group.indices[0])
            with without_dropout(learner.model), drawn, peak or nullcontext():
                outcome = learner(episode, num_steps=num_steps, order="none")
            if peak is not None:
                at_once = stack_size(peak.bytes)
            check_finite(
                outcome.adapted.support_losses,
                outcome.query_losses,
                rule=RULES.name_of(learner.rule),
                where=where,
                indices=group.indices,
            )
            outputs, losses = outcome.outputs.detach(), outcome.query_losses.detach()
            parts.append(_Part(group.indices, outputs, episode.query_y, losses))
        done += count
        on_tasks(done)
    return _Judged(tuple(parts)), at_once


def stack_size(task_bytes: int) -> int:
    """How many tasks are adapted to at once, by the memory that one takes."""
    return max(1, min(_MOST_TASKS, _MOST_BYTES // max(task_bytes, 1)))


def mean_and_interval(values: Tensor) -> tuple[float, float | None]:
    """Over tasks: the mean, and half the width of its 95 % confidence interval."""
    values = values.cpu().double()
    if len(values) == 1:
        return float(values), None
    spread = float(values.std(correction=1))
    return float(values.mean()), 1.96 * spread / math.sqrt(len(values))


def judged_tasks(tasks: Tasks, own: Signature, *, any_way: bool = False) -> Tasks:
    """Tasks for a model that was trained on others, brought to its inputs.

    Args:
        tasks: to judge the model on.
        own: of those that it was trained on.
        any_way: its last layer has an output for each class of a task, however many.

    Raises:
        ConfigError: the model cannot take them.
    """
    if own.mean:
        # A model keeps its training set's normalisation when it is tested elsewhere.
        tasks = tasks.like(own)
    fits = tasks.num_outputs == own.num_outputs or (
        # The linear layer has an output for each class; some of them may stay unused.
        tasks.loss == "cross_entropy" and (any_way or tasks.num_outputs < own.num_outputs)
    )
    if tuple(tasks.input_shape) != tuple(own.input_shape) or not fits:
        raise ConfigError(
            f"the run was trained on inputs of shape {tuple(own.input_shape)} with "
            f"{own.num_outputs} outputs, but these tasks have {tuple(tasks.input_shape)} with "
            f"{tasks.num_outputs}."
        )
    return tasks


def has_batch_norm(model: nn.Module) -> bool:
    """Whether what the model says of one example depends on the others."""
    if isinstance(model, Model):
        return model.has_batch_norm
    return any(map(is_by_batch, model.modules()))


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Dropout off, and all else as in training: normalisation keeps using the set at hand."""
    switch_on = switch_off_dropout(model)
    try:
        yield
    finally:
        switch_on()


@contextlib.contextmanager
def seeded(model: nn.Module, *seed: int) -> Iterator[None]:
    """Make what a model draws, such as its dropout, a function of these numbers."""
    # What others have written may draw by functions, too, which no look at its modules tells.
    is_ours = type(model).__module__.startswith("alfa.")
    if is_ours and not any(isinstance(module, _DropoutNd) for module in model.modules()):
        yield
        return
    with RandomState(next(model.parameters()).device).again():
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        yield


def check_finite(
    support_losses: Tensor,
    query_losses: Tensor,
    *,
    rule: str,
    where: str,
    indices: Sequence[int] | None = None,
    last: str = "the query loss after the last step",
    advice: str = ADVICE,
) -> None:
    """Raise if a loss is not finite.

    Args:
        support_losses: ``[step, task]``.
        query_losses: ``[task]``.
        rule: its name.
        where: in what work this happened.
        indices: of these tasks; from 0 on by default.
        last: what the query losses are called.
        advice: what may help.

    Raises:
        DivergedError: names rule, task and step.
    """
    losses = torch.cat([support_losses.detach(), query_losses.detach().unsqueeze(0)])
    finite = losses.isfinite()
    if bool(finite.all()):
        return
    step, task = (int(index) for index in (~finite).nonzero()[0])
    what = last if step == len(support_losses) else f"the support loss at step {step + 1}"
    index = task if indices is None else indices[task]
    raise DivergedError(
        f"{what} of task {index} is {float(losses[step, task])} {where}, with the rule {rule}; "
        f"{advice}"
    )
