"""The interface of a distribution of few-shot tasks."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from alfa.errors import ConfigError, DataError, check_choice
from alfa.ops import Loss
from alfa.registry import Registry
from alfa.types import Count, Episode

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Signature:
    """The properties of tasks that a model needs when it is used without them.

    `input_shape`, `num_outputs`, `loss`, and `varies` are those of `Tasks`.

    Attributes:
        mean: channel means that normalize images; empty for other inputs.
        std: channel standard deviations, likewise.
        data: a digest of the prepared images; empty for other inputs.
        backbone: the pretrained backbone whose features are the inputs; empty for other inputs.
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    loss: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    varies: bool = False
    data: str = ""
    backbone: str = ""


@dataclass(frozen=True)
class Group:
    """A stack of tasks of the same size, and their indices in the split."""

    indices: tuple[int, ...]
    episode: Episode


def grouped(indices: Iterable[int], tasks: Iterable[Episode]) -> list[Group]:
    """Stack single tasks of the same size; groups are ordered by their first tasks."""
    sizes: dict[tuple[int, ...], list[tuple[int, Episode]]] = {}
    for index, task in zip(indices, tasks, strict=True):
        # Regression targets are not classes.
        way = 0 if task.support_y.is_floating_point() else int(task.support_y.max()) + 1
        size = way, task.support_x.shape[1], task.query_x.shape[1]
        sizes.setdefault(size, []).append((index, task))
    parts = ("support_x", "support_y", "query_x", "query_y")
    groups = []
    for members in sizes.values():
        numbers, same = zip(*members, strict=True)
        # A single task is not copied.
        task = same[0]
        if same[1:]:
            stacked = {part: torch.cat([getattr(t, part) for t in same]) for part in parts}
            task = Episode(**stacked, classes=_classes(same))
        groups.append(Group(numbers, task))
    return groups


def _classes(tasks: Sequence[Episode]) -> torch.Tensor | None:
    """Return the class indices of all tasks, or None if a task has none."""
    known = [task.classes for task in tasks if task.classes is not None]
    return torch.cat(known) if len(known) == len(tasks) else None


class Tasks(abc.ABC):
    """A distribution of few-shot tasks, p(T), split into training, validation, and test tasks.

    To add one, subclass it, set the attributes, implement `episode`, and decorate the class with
    ``@register_tasks("my-tasks")`` from `alfa.data`. Its constructor takes keyword-only options.
    Task `i` of a split must be a pure function of (seed, split, i), so that any process can draw
    it at any time.

    Attributes:
        input_shape: the shape of one input.
        num_outputs: the number of outputs of a model for one input.
        loss: the name of the loss.
        metric: a function of outputs and targets ``[task, example, ...]`` that returns ``[task]``,
            and larger is better. It replaces the metric of the loss, such as accuracy, in
            validation, evaluation, and comparisons. Write it as a method or a static method.
        metric_name: the name of the metric in reports; by default the name of the function.
        varies: tasks have varying numbers of classes, at most `num_outputs`, or of examples; such
            tasks implement `groups`.
        num_train_classes: the number of training classes if `Episode.classes` refers to them.

    Examples:
        >>> import torch
        >>> from alfa import Episode, Tasks
        >>> class Lines(Tasks):
        ...     input_shape, num_outputs, loss = (1,), 1, "mse"
        ...
        ...     def episode(self, first, *, num_tasks, split="train", seed=0):
        ...         slopes = torch.arange(first, first + num_tasks).view(-1, 1, 1) / 10
        ...         x = torch.linspace(-1, 1, 20).expand(num_tasks, 20).unsqueeze(2)
        ...         y = slopes * x
        ...         return Episode(x[:, ::2], y[:, ::2], x[:, 1::2], y[:, 1::2])
        >>> Lines().episode(0, num_tasks=3).query_y.shape
        torch.Size([3, 10, 1])
    """

    input_shape: Sequence[int]
    num_outputs: int
    loss: str
    metric: Loss | None = None
    metric_name: str = ""
    varies: bool = False
    num_train_classes: int | None = None

    @abc.abstractmethod
    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        """Draw tasks `first`, `first` + 1, ... of a split as one stack."""

    def groups(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> list[Group]:
        """Draw the same tasks as one stack for each size."""
        episode = self.episode(first, num_tasks=num_tasks, split=split, seed=seed)
        return [Group(tuple(range(first, first + num_tasks)), episode)]

    def largest(self, num_tasks: int) -> Episode:
        """Return tasks of the largest possible size, to measure their memory."""
        return self.episode(0, num_tasks=num_tasks)

    def signature(self) -> Signature:
        """Return the properties that a model needs when it is used without these tasks."""
        # NumPy integers cannot be written as JSON.
        shape = tuple(map(int, self.input_shape))
        return Signature(shape, int(self.num_outputs), self.loss, varies=self.varies)

    def like(self, signature: Signature) -> Tasks:
        """Return the same tasks with the inputs of a model that was trained on other tasks."""
        return self

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        """Return the configuration overrides that draw such tasks from another prepared dataset.

        `size` is the prepared image size, or None if there is only one.
        """
        raise ConfigError(f"{cls.__name__} tasks do not use a dataset; remove --dataset.")

    def check(self, *splits: Split) -> None:  # noqa: B027 - most tasks can always be drawn
        """Raise a DataError that lists all faults if tasks of these splits cannot be drawn."""

    def prepare(  # noqa: B027 - most tasks can be drawn at once
        self, split: Split, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Compute what all tasks of a split share, such as features of a pretrained backbone.

        Tasks that are drawn before compute it then. `on_progress` is called with the number of
        finished images and their total.
        """

    def stamp(self) -> str:
        """Return a text that changes whenever the files of the tasks are written."""
        return ""

    def names_digest(self, split: Split) -> str:
        """Return a digest of the names of a split's examples, or raise a DataError."""
        return ""

    def verify(self) -> None:  # noqa: B027 - most tasks have no files
        """Raise a DataError if a file of the tasks differs from its checksum."""


TASKS: Registry[Tasks] = Registry("task")
register_tasks = TASKS.register


def task_rng(seed: int, split: Split, index: int) -> np.random.Generator:
    """Return the random generator of one task."""
    check_choice("split", split, SPLITS)
    return np.random.default_rng([seed, SPLITS.index(split), index])


@register_tasks("in-memory")
class InMemory(Tasks):
    """A placeholder for the tasks of a run that was trained on objects; it cannot be created.

    Args:
        description: the class of the tasks.
        way: classes per task.
        shot: support examples per class.
        num_query: query examples per class.
    """

    def __init__(
        self,
        *,
        description: str = "",
        way: Count | None = None,
        shot: Count | None = None,
        num_query: Count | None = None,
    ) -> None:
        raise DataError(
            f"the tasks of this run ({description}) exist only in the program that trained it; "
            "choose a prepared dataset with --dataset."
        )

    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        raise NotImplementedError

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        name = json.dumps(dataset, ensure_ascii=False)
        chosen = [] if size is None else [f"tasks.size={size}"]
        return ["tasks.name=images", "tasks.description=none", f"tasks.dataset={name}", *chosen]
