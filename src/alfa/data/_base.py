"""What a source of tasks is."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    loss: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


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
    """

    input_shape: Sequence[int]
    num_outputs: int
    loss: str

    @abc.abstractmethod
    def episode(
        self, first: int, *, num_tasks: int, split: Split = "train", seed: int = 0
    ) -> Episode:
        """Tasks `first`, `first` + 1, ... of a split, as one stack."""

    def signature(self) -> Signature:
        """What a model must know of these tasks."""
        return Signature(tuple(self.input_shape), self.num_outputs, self.loss)

    def check(self, *splits: Split) -> None:  # noqa: B027 - most tasks can always be drawn
        """Make sure that tasks of these splits can be drawn, before hours of training.

        Raises:
            DataError: they cannot; says everything that is missing.
        """


TASKS: Registry[Tasks] = Registry("task")
register_tasks = TASKS.register


def task_rng(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random source of one task."""
    return np.random.default_rng([seed, SPLITS.index(split), index])
