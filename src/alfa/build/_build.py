"""Build tasks, models, learners, and trainer options from a configuration."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from alfa.config import Experiment, Part, options_of
from alfa.data import TASKS, Signature, Tasks
from alfa.errors import ConfigError
from alfa.inits import INITS, Init
from alfa.learner import Learner
from alfa.models import HEADS, MODELS, Headed, body_parameters, feature_shape
from alfa.objectives import OBJECTIVES, Objective, QueryLoss
from alfa.ops import get_loss
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.registry import Registry
from alfa.rules import RULES, Rule


def build_tasks(experiment: Experiment) -> Tasks:
    """Build the tasks of an experiment."""
    tasks: Tasks = _build(experiment.tasks, TASKS)
    return tasks


def build_model(experiment: Experiment, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Build the model of an experiment for inputs and outputs of any size."""
    with _seeded(experiment.seed) as generator:
        return _build_model(experiment, input_shape, num_outputs, generator)


def _build_model(
    experiment: Experiment,
    input_shape: Sequence[int],
    num_outputs: int,
    generator: torch.Generator,
) -> nn.Module:
    sizes = input_shape, num_outputs
    model: nn.Module = _build(experiment.model, MODELS, *sizes, generator=generator)
    if experiment.head is not None:
        sizes = feature_shape(model), num_outputs
        model = Headed(model, _build(experiment.head, HEADS, *sizes, generator=generator))
    if experiment.model.options.get("frozen"):
        for parameter in body_parameters(model).values():
            parameter.requires_grad_(False)
    return model


def build_objective(experiment: Experiment, model: nn.Module, tasks: Tasks) -> Objective:
    """Build the objective of an experiment, by default the query loss."""
    part = experiment.objective
    if part is None:
        return QueryLoss()
    known = OBJECTIVES.options(part.name)
    context: dict[str, Any] = {"num_steps": experiment.inner.num_steps}
    if "num_features" in known:
        context["num_features"] = math.prod(feature_shape(model))
    if "num_classes" in known:
        context["num_classes"] = tasks.num_train_classes
        if tasks.num_train_classes is None:
            raise ConfigError(
                f"objective.name is {part.name!r}, which needs tasks with common training classes; "
                "use few-shot tasks of images, or omit the objective."
            )
    built: Objective = _build(part, OBJECTIVES, **context)
    return built


def _build(part: Part, registry: Registry[Any], *args: Any, **context: Any) -> Any:
    """Build a part from its options and the context arguments that it accepts."""
    known = registry.options(part.name)
    filled = {key: value for key, value in context.items() if key in known}
    return registry.get(part.name)(*args, **options_of(part, registry), **filled)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[torch.Generator]:
    """Seed a new generator and torch's global one, and restore the global one afterwards.

    A user's part may use the global generator. Parts are built on the CPU, so the generators of
    other devices do not matter.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def build_learner(
    experiment: Experiment, tasks: Tasks | Signature, *, init: Mapping[str, Any] | None = None
) -> Learner:
    """Build the learner of an experiment for tasks; the same seed gives the same weights.

    An `init` such as ``{"name": "prototype-head"}`` replaces the experiment's.
    """
    if init is not None:
        experiment = experiment.model_copy(update={"init": Part(**init)})
    inner, engine = experiment.inner, experiment.engine

    def build_init(part: Part) -> Init:
        wraps = INITS.wraps(part.name, "init")
        base = build_init(Part(**part.options["base"])) if wraps else model
        built: Init = _build(part, INITS, base, **context)
        return built

    with _seeded(experiment.seed) as generator:
        model = _build_model(experiment, tasks.input_shape, tasks.num_outputs, generator)
        context = {"num_steps": inner.num_steps, "generator": generator}
        start = build_init(experiment.init)
        # With zero steps the rule has no effect, which is checked below.
        context["num_steps"] = max(1, inner.num_steps)
        rule = _build(experiment.rule, RULES, start.layers, **context)
    _check_tasks(experiment, start, rule, tasks)
    if inner.num_steps == 0 and not inner.num_test_steps and any(True for _ in rule.parameters()):
        raise ConfigError(
            f"inner.num_steps is 0, so the rule {experiment.rule.name!r}, which has trained "
            "parameters, has no effect; use at least 1 step, or the rule 'sgd'."
        )
    if inner.num_test_steps is not None:
        rule.allow_extra_steps()
    learner = Learner(
        model,
        init=start,
        rule=rule,
        loss=get_loss(tasks.loss).function,
        num_steps=inner.num_steps,
        order=inner.order,
        over_tasks=engine.over_tasks,
        batch_norm=inner.batch_norm,
        batch_size=inner.batch_size,
    )
    return learner.to(getattr(torch, engine.dtype))


def trainer_options(experiment: Experiment, learner: Learner, tasks: Tasks) -> dict[str, Any]:
    """Return the arguments of `alfa.Trainer`, except for the learner, tasks, and device."""
    objective = build_objective(experiment, learner.model, tasks).to(learner.dtype)
    trained = *learner.meta_parameters(), *objective.parameters()
    parameters = [p for p in trained if p.requires_grad]
    optimizer = scheduler = None
    if parameters:
        decayed = [p for p in learner.init.meta_parameters() if p.ndim > 1]
        optimizer = _build(experiment.optimizer, OPTIMIZERS)(parameters, decayed=decayed)
        scheduler = _build(experiment.schedule, SCHEDULES)(optimizer)
    return {
        "objective": None if experiment.objective is None else objective,
        "optimizer": optimizer,
        "scheduler": scheduler,
        **experiment.outer.model_dump(),
        "num_test_tasks": experiment.test.num_tasks,
        "num_test_steps": experiment.inner.num_test_steps,
        "ensemble": experiment.test.ensemble,
        "seed": experiment.seed,
        **experiment.engine.model_dump(exclude={"dtype", "over_tasks"}),
    }


def _check_tasks(experiment: Experiment, init: Init, rule: Rule, tasks: Tasks | Signature) -> None:
    """Raise a ConfigError if the init or the rule does not support the tasks."""
    name, has_classes = experiment.init.name, get_loss(tasks.loss).has_classes
    options = experiment.tasks.options
    way = options.get("way")
    train_way = options.get("train_way", way)
    # Regression tasks of varying size differ only in their examples.
    if (tasks.varies or train_way != way) and has_classes:
        if not init.variable_way:
            heads = " or ".join(known for known in INITS if INITS.get(known).variable_way)
            reason = "" if tasks.varies else f" (tasks.train_way is {train_way}, tasks.way {way})"
            raise ConfigError(
                f"init.name is {name!r}, but these tasks differ in their number of classes"
                f"{reason}; use {heads}, which create a last layer for each task."
            )
        if rule.has_fixed_layers:
            raise ConfigError(
                f"rule.name is {experiment.rule.name!r}, which has values for each weight, but "
                "these tasks differ in their number of classes, so the last layer has no fixed "
                "parameters; use another rule, or leave out rule.per_parameter_decay."
            )
    if init.classification_only and not has_classes:
        raise ConfigError(
            f"init.name is {name!r}, which needs classes, but these tasks are regression; use "
            "'learned'."
        )
