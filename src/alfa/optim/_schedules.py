"""Learning-rate schedules that a configuration names."""

import abc
import math
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from alfa.errors import ConfigError
from alfa.registry import Registry
from alfa.types import Count, NonNegativeFloat, NonNegativeInt, PositiveFloat


class Schedule(abc.ABC):
    """A factor on the learning rate of every outer iteration.

    Args:
        warmup: iterations over which the rate rises linearly to its full value.
    """

    def __init__(self, *, warmup: NonNegativeInt = 0) -> None:
        self.warmup = warmup

    @abc.abstractmethod
    def factor(self, iteration: int) -> float:
        """Return the factor of an iteration, before warm-up."""

    def __call__(self, optimizer: Optimizer) -> LRScheduler:
        """Make a scheduler for `optimizer`, to be stepped after every iteration."""

        def scaled(iteration: int) -> float:
            ramp = min(1.0, (iteration + 1) / self.warmup) if self.warmup else 1.0
            return ramp * self.factor(iteration)

        return LambdaLR(optimizer, scaled)


SCHEDULES: Registry[Schedule] = Registry("schedule")
register_schedule = SCHEDULES.register


@register_schedule("constant")
class Constant(Schedule):
    """A constant rate."""

    def factor(self, iteration: int) -> float:
        return 1.0


@register_schedule("step")
@dataclass(kw_only=True)
class Step(Schedule):
    """The rate is multiplied by `gamma` after every `every` iterations.

    Args:
        gamma: the factor.
        every: iterations between two changes.
    """

    gamma: PositiveFloat = 0.1
    every: Count = 10_000
    warmup: NonNegativeInt = 0

    def factor(self, iteration: int) -> float:
        return self.gamma ** (iteration // self.every)


@register_schedule("piecewise")
@dataclass(kw_only=True)
class Piecewise(Schedule):
    """The rate is constant between milestones.

    Args:
        milestones: iterations at which the rate changes, in ascending order.
        factors: the fraction of the first rate from each milestone on.
    """

    milestones: tuple[Count, ...] = (10_000,)
    factors: tuple[NonNegativeFloat, ...] = (0.1,)
    warmup: NonNegativeInt = 0

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(f"`milestones` must ascend, got {list(self.milestones)}.")
        if len(self.factors) != len(self.milestones):
            raise ConfigError(
                f"`factors` must have one value for each of the {len(self.milestones)} milestones, "
                f"got {list(self.factors)}."
            )

    def factor(self, iteration: int) -> float:
        num_passed = sum(iteration >= milestone for milestone in self.milestones)
        return self.factors[num_passed - 1] if num_passed else 1.0


@register_schedule("cosine")
@dataclass(kw_only=True)
class Cosine(Schedule):
    """The rate falls along half a cosine to `min_factor` of its start.

    Args:
        period: iterations until the rate has fallen; by default all of the training.
        min_factor: the fraction of the rate that remains at the end.
    """

    period: Count | None = None
    min_factor: NonNegativeFloat = 0.0
    warmup: NonNegativeInt = 0

    def factor(self, iteration: int) -> float:
        done = min(1.0, iteration / (self.period or 50_000))
        return self.min_factor + (1 - self.min_factor) * (1 + math.cos(math.pi * done)) / 2


@register_schedule("linear")
@dataclass(kw_only=True)
class Linear(Schedule):
    """The rate falls linearly to `min_factor` of its start.

    Args:
        period: iterations until the rate has fallen; by default all of the training.
        min_factor: the fraction of the rate that remains at the end.
    """

    period: Count | None = None
    min_factor: NonNegativeFloat = 0.0
    warmup: NonNegativeInt = 0

    def factor(self, iteration: int) -> float:
        done = min(1.0, iteration / (self.period or 50_000))
        return self.min_factor + (1 - self.min_factor) * (1 - done)


@register_schedule("custom")
@dataclass(kw_only=True)
class CustomSchedule(Constant):
    """A scheduler that a program passed to `alfa.Trainer`; only that program can make it.

    Args:
        description: the class of the scheduler.
    """

    description: str = ""

    def __call__(self, optimizer: Optimizer) -> LRScheduler:
        raise ConfigError(
            f"a program trained this run with its own scheduler ({self.description}), which a "
            "configuration cannot rebuild; resume the run in that program with Trainer.fit."
        )
