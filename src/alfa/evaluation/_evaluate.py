"""Evaluation of learners on unseen tasks, without gradients of the outer loop."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
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
from alfa.models import BatchNorm, disable_dropout, has_batch_norm
from alfa.ops import Loss, get_loss
from alfa.rules import RULES

ADVICE = (
    "a smaller learning rate, inner or outer, usually helps, and outer.max_skipped lets training "
    "skip a few such iterations."
)

# The largest number of tasks in a stack, and their memory in bytes; more is not faster.
_MOST_TASKS = 100
_MOST_BYTES = 2**29


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        loss: the mean query loss over tasks.
        interval: half the width of the 95 % confidence interval of `loss`; None for one task.
        accuracy: the mean query accuracy over tasks; None for regression, and for tasks with a
            metric of their own.
        accuracy_interval: half the width of the 95 % confidence interval of `accuracy`.
        num_tasks: number of tasks.
        num_steps: number of inner steps.
        split: the split of the tasks.
        seed: the seed of the tasks.
        batch_norm: ``"transductive"`` if queries are normalized by their own statistics,
            ``"inductive"`` if by the support set's; None for a model without batch norm.
        num_models: number of models whose outputs were averaged.
        metric: the mean metric over tasks, if the tasks define one; larger is better.
        metric_interval: half the width of the 95 % confidence interval of `metric`.
        metric_name: the name of the metric.
        per_task: the metric on each task, or else the accuracy, or the loss for regression.
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
    metric: float | None = None
    metric_interval: float | None = None
    metric_name: str | None = None
    per_task: tuple[float, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes except for `per_task`."""
        content = asdict(self)
        del content["per_task"]
        return content

    @property
    def score(self) -> float:
        """The validation score; larger is better."""
        figure = self.figure
        return figure.value if figure.larger_is_better else -figure.value

    @property
    def figure(self) -> "Figure":
        """The figure that decides: the tasks' metric, or else the accuracy, or else the loss."""
        return deciding_figure(vars(self))


@dataclass(frozen=True)
class Figure:
    """The figure of an evaluation that ranks and reports use.

    Attributes:
        name: its name, such as ``"accuracy"``.
        value: the mean over tasks.
        interval: half the width of its 95 % confidence interval; None for one task.
        is_fraction: reports show it in percent.
        larger_is_better: whether larger values are better.
    """

    name: str
    value: float
    interval: float | None
    is_fraction: bool = False
    larger_is_better: bool = True


def deciding_figure(found: Mapping[str, Any]) -> Figure:
    """Return the figure that decides in an evaluation, given its attributes."""
    if found.get("metric") is not None:
        return Figure(found["metric_name"], found["metric"], found["metric_interval"])
    if found["accuracy"] is not None:
        return Figure("accuracy", found["accuracy"], found["accuracy_interval"], is_fraction=True)
    return Figure("loss", found["loss"], found["interval"], larger_is_better=False)


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
    """Adapt a learner to unseen tasks and test it on their queries.

    Args:
        learner: the learner, or several, whose outputs are averaged. An iterable is consumed
            once, and each learner is used before the next one is taken.
        tasks: the source of the tasks.
        num_tasks: number of tasks.
        num_steps: inner steps; by default the learner's.
        split: the split of the tasks.
        seed: the seed of the tasks.
        device: the device to compute on; by default the learner's.
        where: the name of this evaluation in error messages.
        processes: the processes that share the tasks.
        on_tasks: called with the number of completed tasks, over all learners.

    Raises:
        DivergedError: a loss is not finite; names the task and the step.

    Examples:
        >>> from alfa import MLP, SGD, LearnedInit, Learner, Sinusoids, evaluate, mse
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
        >>> found = evaluate(learner, Sinusoids(), num_tasks=20)
        >>> found.interval > 0  # half the width of the 95 % confidence interval
        True
    """
    own, metric = processes.own(num_tasks), tasks.metric or get_loss(tasks.loss).metric
    where = where or f"in the evaluation on {split} tasks"
    options: dict[str, Any] = {"num_steps": num_steps, "split": split, "seed": seed}
    used: list[Learner] = []

    def scores_of_own_tasks() -> Tensor:
        stacks: list[_Stack] = []
        # Tasks of different sizes are adapted one by one; otherwise the first learner decides.
        at_once = 1 if tasks.varies else None
        for number, member in enumerate([learner] if isinstance(learner, Learner) else learner):

            def on_more(count: int, before: int = number * len(own)) -> None:
                # The other processes have completed about as many.
                on_tasks((before + count) * num_tasks // len(own))

            found, at_once = _adapt(
                member, tasks, own, at_once, **options, device=device, where=where, on_tasks=on_more
            )
            for stack, other in zip(stacks, found, strict=True) if stacks else ():
                stack.outputs = stack.outputs + other.outputs
            stacks = stacks or found
            used.append(member)
        if not used:
            raise ConfigError("`learner` is an empty sequence; give at least one learner.")
        return _scores(stacks, used[0].loss, metric, num_models=len(used))

    scores = processes.concatenated(scores_of_own_tasks)
    loss, interval = mean_and_interval(scores[:, 0])
    measured = mean_and_interval(scores[:, 1]) if metric else (None, None)
    accuracy, accuracy_interval = (None, None) if tasks.metric else measured
    own_metric, own_interval = measured if tasks.metric else (None, None)
    return Evaluation(
        loss=loss,
        interval=interval,
        accuracy=accuracy,
        accuracy_interval=accuracy_interval,
        num_tasks=num_tasks,
        num_steps=used[0].num_steps if num_steps is None else num_steps,
        split=split,
        seed=seed,
        batch_norm=used[0].batch_norm if has_batch_norm(used[0].model) else None,
        num_models=len(used),
        metric=own_metric,
        metric_interval=own_interval,
        metric_name=_metric_name(tasks),
        per_task=tuple(scores[:, 1 if metric else 0].tolist()),
    )


def _metric_name(tasks: Tasks) -> str | None:
    """Return the name of the tasks' metric, if they define one."""
    if tasks.metric is None:
        return None
    own = str(getattr(tasks.metric, "__name__", type(tasks.metric).__name__))
    # A lambda has no name.
    return tasks.metric_name or (own.replace("_", " ") if own.isidentifier() else "metric")


@dataclass
class _Stack:
    """Tasks that are adapted together, with their query outputs summed over all learners."""

    indices: tuple[int, ...]
    outputs: Tensor
    targets: Tensor


@torch.no_grad()
def _scores(
    stacks: Sequence[_Stack], loss: Loss, metric: Loss | None, *, num_models: int
) -> Tensor:
    """Return the loss and metric, if any, of the mean outputs, ``[task, 1 or 2]``, in order."""
    if not stacks:
        return torch.empty(0, 1 if metric is None else 2, dtype=torch.float64)
    columns = [[loss(stack.outputs / num_models, stack.targets) for stack in stacks]]
    if metric is not None:
        pairs = ((stack.outputs / num_models, stack.targets) for stack in stacks)
        columns.append([_check_metric(metric(*pair), len(pair[1])) for pair in pairs])
    order = torch.tensor([index for stack in stacks for index in stack.indices]).argsort()
    return torch.stack([torch.cat(column).cpu().double()[order] for column in columns], dim=1)


def _check_metric(values: Tensor, num_tasks: int) -> Tensor:
    """Return the values; raise ConfigError unless each task has a finite one."""
    if values.shape != (num_tasks,):
        raise ConfigError(
            f"the metric must return one value per task, of shape ({num_tasks},), got "
            f"{tuple(values.shape)}; take the mean over the examples, for example with "
            "`.flatten(1).mean(1)`."
        )
    if not bool(values.isfinite().all()):
        wrong = float(values[~values.isfinite()][0])
        raise ConfigError(f"the metric must be finite, got {wrong}; return a finite worst value.")
    return values


def _adapt(
    learner: Learner,
    tasks: Tasks,
    own: range,
    at_once: int | None,
    *,
    num_steps: int | None,
    split: Split,
    seed: int,
    device: torch.device | str | None,
    where: str,
    on_tasks: OnTasks,
) -> tuple[list[_Stack], int | None]:
    """Adapt to some of the tasks; also return the number of tasks that are adapted at once."""
    if device is None:
        device = next(learner.parameters()).device
    stacks: list[_Stack] = []
    done = 0
    while done < len(own):
        # The first task alone fills caches; the second one alone shows the memory of a task.
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
            stacks.append(_Stack(group.indices, outcome.outputs.detach(), episode.query_y))
        done += count
        on_tasks(done)
    return stacks, at_once


def stack_size(task_bytes: int) -> int:
    """Return the number of tasks to adapt at once, given the memory of one task."""
    return max(1, min(_MOST_TASKS, _MOST_BYTES // max(task_bytes, 1)))


def mean_and_interval(values: Tensor) -> tuple[float, float | None]:
    """Return the mean over tasks, and half the width of its 95 % confidence interval."""
    values = values.cpu().double()
    if len(values) == 1:
        return float(values), None
    deviation = float(values.std(correction=1))
    return float(values.mean()), 1.96 * deviation / math.sqrt(len(values))


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Disable dropout; unlike in torch's evaluation mode, batch norm uses batch statistics."""
    switch_on = disable_dropout(model)
    try:
        yield
    finally:
        switch_on()


@contextlib.contextmanager
def seeded(model: nn.Module, *seed: int) -> Iterator[None]:
    """Seed the random numbers that a model draws, such as its dropout."""
    # A user's model may also draw random numbers in functions, which its modules do not show.
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
    """Raise a DivergedError that names rule, task, and step if a loss is not finite.

    `support_losses` are ``[step, task]`` and `query_losses`, which the error calls `last`, are
    ``[task]``. `indices` number the tasks, by default from 0 on.
    """
    losses = torch.cat([support_losses.detach(), query_losses.detach().unsqueeze(0)])
    finite = losses.isfinite()
    if bool(finite.all()):
        return
    step, task = (int(index) for index in (~finite).nonzero()[0])
    name = last if step == len(support_losses) else f"the support loss at step {step + 1}"
    index = task if indices is None else indices[task]
    raise DivergedError(
        f"{name} of task {index} is {float(losses[step, task])} {where}, with the rule {rule}; "
        f"{advice}"
    )
