"""What a source of tasks is."""

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
    """What must be known of the tasks that a model was trained on, to use it without them.

    Attributes:
        input_shape: the shape of one input.
        num_outputs: what a model puts out for one input.
        loss: the name of the loss that fits.
        mean: of every channel of images, which are normalised by it; otherwise nothing.
        std: likewise.
        varies: tasks differ in their number of classes, of which there are `num_outputs` at most.
        data: tells apart images that were prepared differently; nothing where none were.
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
    """Tasks of one size, as a stack.

    Attributes:
        indices: which tasks of a split these are.
        episode: the tasks.
    """

    indices: tuple[int, ...]
    episode: Episode


def grouped(indices: Iterable[int], tasks: Iterable[Episode]) -> list[Group]:
    """Single tasks, those of one size stacked; every group begins with its first task."""
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
        num_outputs: what a model must put out for one input.
        loss: the name of the loss that fits.
        varies: tasks differ in their number of classes, of which there are `num_outputs` at most,
            or of examples; such tasks implement `groups`.

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
        """The same tasks, a stack for each size that they have."""
        episode = self.episode(first, num_tasks=num_tasks, split=split, seed=seed)
        return [Group(tuple(range(first, first + num_tasks)), episode)]

    def largest(self, num_tasks: int) -> Episode:
        """Tasks as large as they can get, to see what they take."""
        return self.episode(0, num_tasks=num_tasks)

    def signature(self) -> Signature:
        """What a model must know of these tasks."""
        # NumPy's numbers cannot be written as JSON.
        shape = tuple(map(int, self.input_shape))
        return Signature(shape, int(self.num_outputs), self.loss, varies=self.varies)

    def like(self, signature: Signature) -> Tasks:
        """The same tasks as a model that was trained on others must see them."""
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
        """Make sure that tasks of these splits can be drawn, before hours of training.

        Raises:
            DataError: they cannot; says everything that is missing.
        """

    def stamp(self) -> str:
        """Another one whenever somebody has written into the files that tasks come from."""
        return ""

    def names_digest(self, split: Split) -> str:
        """Another one where the examples that tasks of a split are drawn from have other names.

        Raises:
            DataError: the names cannot be read.
        """
        return ""

    def verify(self) -> None:  # noqa: B027 - most tasks come from no files
        """Compare the files that tasks come from with their checksums, which reads all of them.

        Raises:
            DataError: they hold something else; says what.
        """


TASKS: Registry[Tasks] = Registry("task")
register_tasks = TASKS.register


def task_rng(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random source of one task."""
    check_choice("split", split, SPLITS)
    return np.random.default_rng([seed, SPLITS.index(split), index])
