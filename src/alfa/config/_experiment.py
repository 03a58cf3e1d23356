"""What an experiment is: its sections, with their defaults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from alfa.models import BatchNorm, OverTasks
from alfa.types import Count, NonNegativeInt, PositiveFloat


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Part(BaseModel):
    """A registered part by name, and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Inner(Section):
    """The inner loop: `num_steps` steps, and an outer gradient of `order`.

    In validation and test there are `num_test_steps`, where that is set.

    `batch_norm` is transductive where queries are normalised by their own statistics, and
    inductive where by those of the support set.
    """

    num_steps: Count = 5
    num_test_steps: Count | None = None
    order: Literal["second", "first"] = "second"
    batch_norm: BatchNorm = "transductive"


class Engine(Section):
    """How the same figures are computed.

    Nothing here changes them beyond rounding, except for a model that draws random numbers, as
    dropout does: which task gets which of them depends on it.

    `dtype` is that of weights and examples. Tasks run one after the other or all at once
    (`over_tasks`). `memory` says what is kept of
    every step for the outer gradient, everything or only its weights; the outer gradients of
    `tasks_at_once` tasks are computed together. Where either is not given, it is chosen so that
    `memory_budget`, in GB and by default most of what is free, is enough. A run that is resumed
    keeps to what was chosen when it began.

    The state is kept after every validation, after every `checkpoint_seconds`, and after every
    `checkpoint_every` iterations where that is given: a run that is killed loses no more.
    """

    dtype: Literal["float32", "float64"] = "float32"
    over_tasks: OverTasks = "auto"
    memory: Literal["auto", "store", "recompute"] = "auto"
    tasks_at_once: Count | None = None
    memory_budget: PositiveFloat | None = None
    checkpoint_every: Count | None = None
    checkpoint_seconds: PositiveFloat = 120.0


class Outer(Section):
    """The outer loop (Eqs. 2 and 6): steps on the mean query loss of `num_tasks` tasks.

    An epoch is `validate_every` iterations. Each epoch is validated on the same `num_val_tasks`
    tasks and compared with the others by the metric of the loss.

    A gradient longer than `max_gradient_norm`, if that is set, is scaled down to it. A loss or
    gradient that is not finite stops the run; up to `max_skipped` such iterations or validations
    are skipped and counted instead.
    """

    num_iterations: Count = 50_000
    num_tasks: Count = 4
    max_gradient_norm: PositiveFloat | None = None
    max_skipped: NonNegativeInt = 0
    validate_every: Count = 500
    num_val_tasks: Count = 600


class Test(Section):
    """The final test, on tasks that training and validation never see.

    The model of the best epoch is tested, and the mean of the outputs of the `ensemble` best ones.
    """

    num_tasks: Count = 600
    ensemble: Count = 5


class Experiment(Section):
    """Everything that decides a run's figures."""

    preset: Literal["default", "paper", "published-code"] = "default"
    seed: int = Field(default=0, ge=0, lt=2**63)
    plugins: tuple[str, ...] = ()
    tasks: Part
    model: Part
    init: Part = Part(name="learned")
    rule: Part = Part(name="sgd")
    optimizer: Part = Part(name="adam")
    schedule: Part = Part(name="constant")
    inner: Inner = Inner()
    outer: Outer = Outer()
    test: Test = Test()
    engine: Engine = Engine()

    def fingerprint(self) -> str:
        """The same for experiments whose training goes through the same states."""
        text = json.dumps(self.deciding(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def deciding(self) -> dict[str, Any]:
        """What decides which states its training goes through."""
        content = to_dict(self)
        for key in ("num_iterations", "max_skipped"):
            content["outer"].pop(key)
        content["test"] = {}
        content.pop("engine")
        # A run stores the weights it started from, so their path does not matter.
        if "weights" in content["model"]:
            content["model"]["weights"] = True
        return content


def differing(first: Experiment, second: Experiment) -> list[str]:
    """What decides their training, and is not the same in both, such as ``"seed is 0 and 1"``.

    Of parts that are different ones, nobody need hear the options.
    """
    ours, theirs = (_by_key(experiment.deciding()) for experiment in (first, second))
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    others = tuple(key.removesuffix("name") for key in keys if key.endswith(".name"))
    return [
        f"{key} is {_told(ours, key)} and {_told(theirs, key)}"
        for key in keys
        if key.endswith(".name") or not key.startswith(others)
    ]


def _told(content: Mapping[str, Any], key: str) -> str:
    return repr(content[key]) if key in content else "not given"


def _by_key(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= (
            _by_key(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return found


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain values for TOML or JSON; what is None is left out, as TOML has no such value."""
    # Every option is spelled out, so there is nothing left for a preset to say.
    content: dict[str, Any] = without_none(experiment.model_dump(mode="json", exclude={"preset"}))
    return content


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_none(item) for item in value]
    return value
