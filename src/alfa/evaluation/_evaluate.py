"""Evaluation: adaptation without any graph, on tasks that were never trained on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from alfa._distributed import ALONE, Processes
from alfa.data import Split, Tasks
from alfa.errors import ConfigError, DivergedError
from alfa.evaluation._memory_probe import MemoryProbe
from alfa.learner import Learner, RandomState
from alfa.models import BatchNorm, Model, disable_dropout, uses_batch_statistics
from alfa.ops import Loss, get_loss
from alfa.rules import RULES

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
    learner: Learner | Iterable[Learner],
    tasks: Tasks,
    *,
    num_tasks: int = 600,
    num_steps: int | None = None,
    split: Split = "test",
    seed: int = 0,
    device: torch.device | str | None = None,
    where: str | None = None,
    processes: Processes = ALONE,
    on_tasks: OnTasks = lambda done: None,
) -> Evaluation:
    """Adapt a learner to unseen tasks, and test it on their queries.

    Args:
        learner: the learner, or several, whose outputs are averaged. An iterable is consumed
            once, and each learner is used before the next one is taken.
        tasks: where the tasks come from.
        num_tasks: the number of tasks.
        num_steps: inner steps; by default the learner's.
        split: the part of the tasks to draw from.
        seed: decides the tasks, together with `split`.
        device: where to compute; by default where the learner is.
        where: the name of this evaluation in error messages.
        processes: the processes that share the tasks.
        on_tasks: called with the number of tasks done so far, over all learners.

    Raises:
        DivergedError: a loss is not finite; names the task and the step.

    Example:
        >>> from alfa import MLP, SGD, LearnedInit, Learner, Sinusoids, evaluate, mse
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
        >>> found = evaluate(learner, Sinusoids(), num_tasks=20)
        >>> found.interval > 0  # half the width of the 95 % confidence interval
        True
    """
    own, metric = processes.own(num_tasks), get_loss(tasks.loss).metric
    first: list[Learner] = []

    def test() -> Tensor:
        learners = [learner] if isinstance(learner, Learner) else learner
        outputs = _TaskOutputs(())
        # One task at a time if tasks differ in size; otherwise the first learner decides.
        at_once = 1 if tasks.varies else None
        for number, member in enumerate(learners):

            def on_more(count: int, before: int = number * len(own)) -> None:
                # The other processes have done about as much meanwhile.
                on_tasks((before + count) * num_tasks // len(own))

            found, at_once = _adapt_to(
                member,
                tasks,
                own,
                num_steps=num_steps,
                split=split,
                seed=seed,
                device=device,
                where=where or f"in the evaluation on {split} tasks",
                at_once=at_once,
                on_tasks=on_more,
            )
            outputs = outputs.plus(found) if number else found
            first.append(member)
        if not first:
            raise ConfigError("`learner` is an empty sequence; give at least one learner.")
        return outputs.scores(first[0].loss, metric, num_models=len(first))

    scores = processes.concatenated(test)
    loss, interval = mean_and_interval(scores[:, 0])
    accuracy, accuracy_interval = mean_and_interval(scores[:, 1]) if metric else (None, None)
    return Evaluation(
        loss=loss,
        interval=interval,
        accuracy=accuracy,
        accuracy_interval=accuracy_interval,
        num_tasks=num_tasks,
        num_steps=first[0].num_steps if num_steps is None else num_steps,
        split=split,
        seed=seed,
        batch_norm=first[0].batch_norm if has_batch_norm(first[0].model) else None,
        num_models=len(first),
        per_task=tuple(scores[:, 1 if metric else 0].tolist()),
    )


@dataclass(frozen=True)
class _Part:
    """Tasks of one size: which, the outputs and targets of their queries, and losses ``[task]``."""

    indices: tuple[int, ...]
    outputs: Tensor
    targets: Tensor
    losses: Tensor


@dataclass(frozen=True)
class _TaskOutputs:
    """The outputs of one or more learners for the queries of every task.

    Attributes:
        parts: tasks by their size, with the sum of the outputs of all learners, and the losses of
            the first one.
    """

    parts: tuple[_Part, ...]

    def plus(self, other: _TaskOutputs) -> _TaskOutputs:
        """The sum of the outputs of two learners for the same tasks."""
        pairs = zip(self.parts, other.parts, strict=True)
        return _TaskOutputs(tuple(replace(a, outputs=a.outputs + b.outputs) for a, b in pairs))

    def scores(self, loss: Loss, metric: Loss | None, *, num_models: int) -> Tensor:
        """Loss and, if there is one, metric of the mean outputs, ``[task, 1 or 2]``."""
        if not self.parts:
            return torch.empty(0, 1 if metric is None else 2, dtype=torch.float64)
        losses = [part.losses for part in self.parts]
        if num_models > 1:
            losses = [loss(part.outputs / num_models, part.targets) for part in self.parts]
        columns = [self._in_order(losses)]
        if metric is not None:
            columns.append(self._in_order([metric(p.outputs, p.targets) for p in self.parts]))
        return torch.stack(columns, dim=1)

    def _in_order(self, values: list[Tensor]) -> Tensor:
        indices = torch.tensor([index for part in self.parts for index in part.indices])
        return torch.cat(values).cpu().double()[indices.argsort()]


def _adapt_to(
    learner: Learner,
    tasks: Tasks,
    own: range,
    *,
    num_steps: int | None,
    split: Split,
    seed: int,
    device: torch.device | str | None,
    where: str,
    at_once: int | None,
    on_tasks: OnTasks,
) -> tuple[_TaskOutputs, int | None]:
    """Adapt to some of the tasks without any graph; also returns how many are adapted at once."""
    if device is None:
        device = next(learner.parameters()).device
    parts: list[_Part] = []
    done = 0
    while done < len(own):
        # Alone, the first task fills caches; the second one shows how much memory a task takes.
        count = 1 if done < 2 else min(at_once or 1, len(own) - done)
        for group in tasks.groups(own.start + done, num_tasks=count, split=split, seed=seed):
            episode = group.episode.to(device, learner.dtype)
            probe = MemoryProbe() if done == 1 and at_once is None else None
            drawn = seeded(learner.model, seed, group.indices[0])
            with without_dropout(learner.model), drawn, probe or nullcontext():
                outcome = learner(episode, num_steps=num_steps, order="none")
            if probe is not None:
                at_once = stack_size(probe.bytes)
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
    return _TaskOutputs(tuple(parts)), at_once


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


def has_batch_norm(model: nn.Module) -> bool:
    """Whether what the model says of one example depends on the others."""
    if isinstance(model, Model):
        return model.has_batch_norm
    return any(map(uses_batch_statistics, model.modules()))


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Dropout off, and all else as in training: normalisation keeps using the set at hand."""
    switch_on = disable_dropout(model)
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
    with RandomState(next(model.parameters()).device).restored():
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
