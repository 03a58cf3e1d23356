"""Learning-rate schedules that a configuration names."""

from __future__ import annotations

import abc
import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from alfa.errors import ConfigError
from alfa.registry import Registry
from alfa.types import Count, NonNegativeFloat, NonNegativeInt, PositiveFloat


class Schedule(abc.ABC):
    """The factor on the learning rate of every outer iteration.

    Args:
        warmup: iterations over which the rate rises linearly to its full value.
    """

    def __init__(self, *, warmup: NonNegativeInt = 0) -> None:
        self.warmup = warmup

    @abc.abstractmethod
    def factor(self, iteration: int) -> float:
        """The factor of an iteration, before warm-up."""

    def __call__(self, optimizer: Optimizer) -> LRScheduler:
        """A scheduler for `optimizer`, to be stepped after every iteration."""

        def scaled(iteration: int) -> float:
            ramp = min(1.0, (iteration + 1) / self.warmup) if self.warmup else 1.0
            return ramp * self.factor(iteration)

        return LambdaLR(optimizer, scaled)


SCHEDULES: Registry[Schedule] = Registry("schedule")
register_schedule = SCHEDULES.register


@register_schedule("constant")
class Constant(Schedule):
    """The same rate throughout.

    Args:
        warmup: iterations over which the rate rises linearly to its full value.
    """

    def __init__(self, *, warmup: NonNegativeInt = 0) -> None:
        super().__init__(warmup=warmup)

    def factor(self, iteration: int) -> float:
        return 1.0


@register_schedule("step")
class Step(Schedule):
    """The rate is multiplied by `gamma` after every `every` iterations.

    Args:
        gamma: the factor.
        every: iterations between two changes.
        warmup: iterations over which the rate rises linearly to its full value.
    """

    def __init__(
        self, *, gamma: PositiveFloat = 0.1, every: Count = 10_000, warmup: NonNegativeInt = 0
    ) -> None:
        super().__init__(warmup=warmup)
        self.gamma, self.every = gamma, every

    def factor(self, iteration: int) -> float:
        return self.gamma ** (iteration // self.every)


@register_schedule("cosine")
class Cosine(Schedule):
    """The rate falls along half a cosine to `min_factor` of its start.

    Args:
        period: iterations until the rate has fallen; by default all of the training.
        min_factor: what remains of the rate in the end.
        warmup: iterations over which the rate rises linearly to its full value.
    """

    def __init__(
        self,
        *,
        period: Count | None = None,
        min_factor: NonNegativeFloat = 0.0,
        warmup: NonNegativeInt = 0,
    ) -> None:
        super().__init__(warmup=warmup)
        self.period, self.min_factor = period or 50_000, min_factor

    def factor(self, iteration: int) -> float:
        done = min(1.0, iteration / self.period)
        return self.min_factor + (1 - self.min_factor) * (1 + math.cos(math.pi * done)) / 2


@register_schedule("custom")
class CustomSchedule(Constant):
    """A scheduler that a program passed to `alfa.Trainer`; only that program can make it.

    Args:
        description: the class of the scheduler.
    """

    def __init__(self, *, description: str = "") -> None:
        super().__init__()
        self.description = description

    def __call__(self, optimizer: Optimizer) -> LRScheduler:
        raise ConfigError(
            f"this run was trained with a scheduler from a program ({self.description}), which a "
            "configuration cannot rebuild; resume it in that program with Trainer.fit."
        )
