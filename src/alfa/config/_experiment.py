"""The sections of an experiment, and their defaults."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from alfa.models import BatchNorm, OverTasks
from alfa.optim import Pretraining
from alfa.types import Count, NonNegativeInt, PositiveFloat


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Part(BaseModel):
    """The name and options of a registered part."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Inner(Section):
    """The inner loop: `num_steps` steps, and an outer gradient of first or second `order`.

    With 0 steps, the init alone adapts to the support set, as in prototypical networks. Validation
    and test use `num_test_steps` steps if it is set. `batch_norm` normalizes queries by
    the statistics of the queries (transductive) or of the support set (inductive). Each step uses
    `batch_size` support examples, or all of them if it is not set.
    """

    num_steps: NonNegativeInt = 5
    num_test_steps: NonNegativeInt | None = None
    order: Literal["second", "first"] = "second"
    batch_norm: BatchNorm = "transductive"
    batch_size: Count | None = None


class Engine(Section):
    """How to compute; these options change the results only by rounding.

    Models that draw random numbers, for example for dropout, are an exception: these options
    determine which task gets which numbers.

    `dtype` is the type of the weights and examples. `over_tasks` selects if tasks run one after the
    other or all at once. For the outer gradient, `memory` selects if the activations of every step
    are stored or recomputed from the weights of the step. `tasks_at_once` is the number of tasks
    whose outer gradients are computed together. By default, alfa chooses `memory` and
    `tasks_at_once` to fit into `memory_budget`, in GB, or, without a budget, into most of the free
    memory. A resumed run keeps this choice.

    alfa saves the state after every validation, every `checkpoint_seconds`, and, if set, every
    `checkpoint_every` iterations.
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

    An epoch is `validate_every` iterations. Every epoch is validated on the same `num_val_tasks`
    tasks. They are ranked by the metric of the loss, such as accuracy, or else by the loss. With
    `validate_start`, the untrained learner is validated, too, so the best model is never worse in
    validation; the result then contains the gain of the best model over the untrained one.

    If `max_gradient_norm` is set, gradients with a larger norm are scaled down to it. alfa skips
    and counts up to `max_skipped` iterations or validations with a loss or gradient that is not
    finite; the next one stops the run.
    """

    num_iterations: Count = 50_000
    num_tasks: Count = 4
    max_gradient_norm: PositiveFloat | None = None
    max_skipped: NonNegativeInt = 0
    validate_every: Count = 500
    validate_start: bool = False
    num_val_tasks: Count = 600


class Test(Section):
    """The final test, on tasks used in neither training nor validation.

    alfa tests the model of the best epoch, and the mean output of the models of the best epochs;
    `ensemble` is their number.
    """

    num_tasks: Count = 600
    ensemble: Count = 5


class Experiment(Section):
    """All settings that determine the results of a run."""

    preset: Literal["default", "paper", "published-code"] = "default"
    seed: int = Field(default=0, ge=0, lt=2**63)
    plugins: tuple[str, ...] = ()
    tasks: Part
    model: Part
    # Replaces the last layer of the model.
    head: Part | None = None
    init: Part = Part(name="learned")
    rule: Part = Part(name="sgd")
    # By default, the query loss.
    objective: Part | None = None
    optimizer: Part = Part(name="adam")
    schedule: Part = Part(name="constant")
    # Trains the backbone first, unless the model has weights.
    pretraining: Pretraining | None = None
    inner: Inner = Inner()
    outer: Outer = Outer()
    test: Test = Test()
    engine: Engine = Engine()

    def fingerprint(self) -> str:
        """Hash the settings that determine the training state."""
        text = json.dumps(self.training_settings(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def training_settings(self) -> dict[str, Any]:
        """Return the settings that determine the training state."""
        content = to_dict(self)
        for key in ("num_iterations", "max_skipped", "validate_start"):
            content["outer"].pop(key)
        content["test"] = {}
        content.pop("engine")
        # A run stores its initial weights, so their path does not matter.
        if "weights" in content["model"]:
            content["model"]["weights"] = True
            content.pop("pretraining", None)
        return content


def differing(first: Experiment, second: Experiment) -> list[str]:
    """Return the differences that affect training, such as ``"seed is 0 and 1"``.

    The result omits the options of parts with different names.
    """
    ours, theirs = (_flatten(experiment.training_settings()) for experiment in (first, second))
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    other_parts = tuple(key.removesuffix("name") for key in keys if key.endswith(".name"))

    def show(content: Mapping[str, Any], key: str) -> str:
        return repr(content[key]) if key in content else "not given"

    return [
        f"{key} is {show(ours, key)} and {show(theirs, key)}"
        for key in keys
        if key.endswith(".name") or not key.startswith(other_parts)
    ]


def _flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Return plain values for TOML or JSON, without None, which TOML does not support."""
    # Omit the preset: all options have values, so it would change nothing.
    content: dict[str, Any] = without_none(experiment.model_dump(mode="json", exclude={"preset"}))
    return content


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_none(item) for item in value]
    return value
