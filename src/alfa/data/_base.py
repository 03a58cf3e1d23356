"""The interface of a distribution of tasks."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from alfa.errors import ConfigError, check_choice
from alfa.registry import Registry
from alfa.types import Episode

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Signature:
    """The properties of tasks that a model needs to be used without them.

    Attributes:
        input_shape: the shape of one input.
        num_outputs: the number of outputs for one input.
        loss: the name of the loss.
        mean: of every channel, by which images are normalised; empty for other inputs.
        std: likewise.
        varies: tasks have varying numbers of classes, at most `num_outputs`.
        data: identifies prepared images; empty for other inputs.
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    loss: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    varies: bool = False
    data: str = ""


@dataclass(frozen=True)
class Group:
    """Tasks of one size, stacked, and their indices in the split."""

    indices: tuple[int, ...]
    episode: Episode


def grouped(indices: Iterable[int], tasks: Iterable[Episode]) -> list[Group]:
    """Stack single tasks of the same size; groups are in the order of their first tasks."""
    sizes: dict[tuple[int, ...], list[tuple[int, Episode]]] = {}
    for index, task in zip(indices, tasks, strict=True):
        # Targets of regression are no classes.
        way = 0 if task.support_y.is_floating_point() else int(task.support_y.max()) + 1
        size = way, task.support_x.shape[1], task.query_x.shape[1]
        sizes.setdefault(size, []).append((index, task))
    groups = []
    for members in sizes.values():
        numbers, own = zip(*members, strict=True)
        parts = ("support_x", "support_y", "query_x", "query_y")
        stacked = own[0]
        if len(own) > 1:
            stacked = Episode(*(torch.cat([getattr(t, part) for t in own]) for part in parts))
        groups.append(Group(tuple(numbers), stacked))
    return groups


class Tasks(abc.ABC):
    """A distribution of few-shot tasks, p(T), split for training, validation and test.

    To add one, subclass, set the attributes, implement `episode`, and decorate the class with
    ``@register_tasks("my-tasks")`` from `alfa.data`. Its constructor takes keyword-only options.

    Task `i` of a split is a pure function of (seed, split, i): it does not matter which
    process draws it, or when.

    Attributes:
        input_shape: the shape of one input.
        num_outputs: the number of outputs of a model for one input.
        loss: the name of the loss.
        varies: tasks have varying numbers of classes, at most `num_outputs`, or of examples; such
            tasks implement `groups`.

    Example:
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
    varies: bool = False

    @abc.abstractmethod
    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        """Tasks `first`, `first` + 1, ... of a split, as one stack."""

    def groups(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> list[Group]:
        """The same tasks, one stack for each size."""
        episode = self.episode(first, num_tasks=num_tasks, split=split, seed=seed)
        return [Group(tuple(range(first, first + num_tasks)), episode)]

    def largest(self, num_tasks: int) -> Episode:
        """Tasks of the largest possible size, to measure their memory."""
        return self.episode(0, num_tasks=num_tasks)

    def signature(self) -> Signature:
        """The properties that a model needs to be used without these tasks."""
        # NumPy's numbers cannot be written as JSON.
        shape = tuple(map(int, self.input_shape))
        return Signature(shape, int(self.num_outputs), self.loss, varies=self.varies)

    def like(self, signature: Signature) -> Tasks:
        """The same tasks with the inputs of a model that was trained on other tasks."""
        return self

    @classmethod
    def dataset_overrides(cls, dataset: str, size: int | None) -> list[str]:
        """The configuration overrides that draw such tasks from another dataset.

        Args:
            dataset: the name of a prepared dataset.
            size: the prepared image size; by default the only one.

        Raises:
            ConfigError: these tasks do not come from a dataset.
        """
        raise ConfigError(f"{cls.__name__} tasks do not come from a dataset; leave --dataset out.")

    def check(self, *splits: Split) -> None:  # noqa: B027 - most tasks can always be drawn
        """Make sure that tasks of these splits can be drawn, before training.

        Raises:
            DataError: they cannot; lists everything that is missing.
        """

    def stamp(self) -> str:
        """Changes whenever the files of the tasks are written."""
        return ""

    def names_digest(self, split: Split) -> str:
        """Identifies the names of the examples of a split.

        Raises:
            DataError: the names cannot be read.
        """
        return ""

    def verify(self) -> None:  # noqa: B027 - most tasks come from no files
        """Compare all files of the tasks with their checksums.

        Raises:
            DataError: a file was changed.
        """


TASKS: Registry[Tasks] = Registry("task")
register_tasks = TASKS.register


def task_rng(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random source of one task."""
    check_choice("split", split, SPLITS)
    return np.random.default_rng([seed, SPLITS.index(split), index])
