"""From a configuration to objects: the only file that knows both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from alfa.config import Experiment, Part, options_of
from alfa.data import TASKS, Signature, Tasks
from alfa.errors import ConfigError
from alfa.inits import INITS, Init
from alfa.learner import Learner
from alfa.models import MODELS
from alfa.ops import get_loss
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.registry import Registry
from alfa.rules import RULES


def build_tasks(experiment: Experiment) -> Tasks:
    """Where the tasks of an experiment come from."""
    return TASKS.get(experiment.tasks.name)(**options_of(experiment.tasks, TASKS))


def build_model(experiment: Experiment, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """The model of an experiment alone, for inputs and outputs of any size."""
    with _seeded(experiment.seed) as generator:
        built: nn.Module = _build(
            experiment.model, MODELS, input_shape, num_outputs, generator=generator
        )
    return built


def _build(part: Part, registry: Registry[Any], *args: Any, **context: Any) -> Any:
    """A part with its options, and what it takes of the context."""
    known = registry.options(part.name)
    filled = {key: value for key, value in context.items() if key in known}
    return registry.get(part.name)(*args, **options_of(part, registry), **filled)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[torch.Generator]:
    """A source of random numbers.

    A user's own part may draw from torch's global source, which is put back afterwards. Parts are
    built on the CPU, so that the sources of other devices stay as they are.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def build_learner(
    experiment: Experiment, tasks: Tasks | Signature, *, init: Mapping[str, Any] | None = None
) -> Learner:
    """The learner of an experiment; the same seed gives the same one.

    Args:
        experiment: the experiment.
        tasks: the tasks, or the signature of the tasks that it was trained on.
        init: an init that replaces the experiment's, such as ``{"name": "prototype-head"}``.
    """
    if init is not None:
        experiment = experiment.model_copy(update={"init": Part(**init)})

    def build_init(part: Part, model: nn.Module) -> Init:
        wraps = INITS.wraps(part.name, "init")
        inner = build_init(Part(**part.options["base"]), model) if wraps else model
        init: Init = _build(part, INITS, inner, generator=generator)
        return init

    with _seeded(experiment.seed) as generator:
        sizes = tasks.input_shape, tasks.num_outputs
        model = _build(experiment.model, MODELS, *sizes, generator=generator)
        start = build_init(experiment.init, model)
        num_steps = experiment.inner.num_steps
        rule = _build(
            experiment.rule, RULES, start.layers, num_steps=num_steps, generator=generator
        )
    _check_head(start, tasks, experiment.init.name)
    if _differ_in_classes(tasks) and experiment.rule.options.get("per_parameter_decay"):
        raise ConfigError(
            "rule.per_parameter_decay is true, but these tasks differ in their number of classes, "
            "so that weights of the last layer come and go; leave it out."
        )
    if experiment.inner.num_test_steps is not None:
        rule.allow_extra_steps()
    learner = Learner(
        model,
        init=start,
        rule=rule,
        loss=get_loss(tasks.loss).function,
        num_steps=experiment.inner.num_steps,
        order=experiment.inner.order,
        over_tasks=experiment.engine.over_tasks,
        batch_norm=experiment.inner.batch_norm,
    )
    return learner.to(getattr(torch, experiment.engine.dtype))


def trainer_options(experiment: Experiment, learner: Learner) -> dict[str, Any]:
    """The arguments of `alfa.Trainer`, except for the learner, tasks, and device."""
    outer, engine = experiment.outer, experiment.engine
    parameters = [p for p in learner.meta_parameters() if p.requires_grad]
    optimizer = scheduler = None
    if parameters:
        decayed = [p for p in learner.init.meta_parameters() if p.ndim > 1]
        optimizer = _build(experiment.optimizer, OPTIMIZERS)(parameters, decayed=decayed)
        scheduler = _build(experiment.schedule, SCHEDULES)(optimizer)
    return {
        "optimizer": optimizer,
        "scheduler": scheduler,
        **outer.model_dump(),
        "num_test_tasks": experiment.test.num_tasks,
        "num_test_steps": experiment.inner.num_test_steps,
        "ensemble": experiment.test.ensemble,
        "seed": experiment.seed,
        **engine.model_dump(exclude={"dtype", "over_tasks"}),
    }


def _differ_in_classes(tasks: Tasks | Signature) -> bool:
    """Whether weights of the last layer come and go; curves differ in their examples only."""
    return tasks.varies and get_loss(tasks.loss).has_classes


def _check_head(init: Init, tasks: Tasks | Signature, name: str) -> None:
    """Refuse an init whose last layer does not fit the tasks."""
    heads = [known for known in INITS if INITS.get(known).variable_way]
    if _differ_in_classes(tasks) and not init.variable_way:
        raise ConfigError(
            f"init.name is {name!r}, but these tasks differ in their number of classes; it must "
            f"make a last layer for each task, as {' and '.join(heads)} do."
        )
    if init.classification_only and not get_loss(tasks.loss).has_classes:
        raise ConfigError(
            f"init.name is {name!r}, which needs classes, but these tasks are regression; use "
            "'learned'."
        )
