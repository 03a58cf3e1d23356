"""Describe objects as a configuration, so that they can be rebuilt from a run folder."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from alfa.config import Engine, Experiment, Inner, Outer, Test, parse_experiment
from alfa.data import TASKS, Tasks
from alfa.errors import AlfaWarning, ConfigError
from alfa.inits import INITS, Init
from alfa.learner import Learner
from alfa.models import HEADS, MODELS, Headed, body_parameters
from alfa.objectives import OBJECTIVES, Objective
from alfa.rules import RULES


def describe_experiment(
    learner: Learner,
    tasks: Tasks,
    *,
    objective: Objective | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    **options: Any,
) -> Experiment:
    """Return the experiment that describes these objects and options of `alfa.Trainer`.

    It records only the names of optimizers and schedulers, because a configuration cannot rebuild
    arbitrary ones. Unregistered tasks are available only to the program that created them.

    Raises:
        ConfigError: the model, init, or rule is not registered, or an option cannot be stored.
    """
    parts: dict[str, Mapping[str, Any]] = {
        "tasks": _describe_tasks(tasks),
        **_describe_model(learner.model),
        "init": _describe_init(learner.init),
        "rule": RULES.describe(learner.rule),
    }
    if objective is not None:
        parts["objective"] = OBJECTIVES.describe(objective)
    for key, part in (("optimizer", optimizer), ("schedule", scheduler)):
        if part is not None:
            description = f"{type(part).__module__}.{type(part).__qualname__}"
            parts[key] = {"name": "custom", "description": description}

    def section(kind: Any, **renamed: Any) -> dict[str, Any]:
        given = {key: options[key] for key in kind.model_fields if key in options}
        return {key: value for key, value in {**given, **renamed}.items() if value is not None}

    inner = {
        key: getattr(learner, key) for key in ("num_steps", "order", "batch_norm", "batch_size")
    }
    dtype = str(learner.dtype).removeprefix("torch.")
    return parse_experiment(
        {
            "seed": options.get("seed", 0),
            "plugins": _plugins(learner, tasks, objective),
            **parts,
            "inner": section(Inner, **inner),
            "outer": section(Outer),
            # The trainer's `num_tasks` is the number of tasks in an outer iteration.
            "test": section(Test, num_tasks=options.get("num_test_tasks")),
            "engine": section(Engine, dtype=dtype, over_tasks=learner.over_tasks),
        },
        source="these objects",
    )


def _describe_model(model: nn.Module) -> dict[str, Mapping[str, Any]]:
    parts: dict[str, Mapping[str, Any]] = {}
    backbone = model
    if isinstance(model, Headed):
        backbone, parts["head"] = model.backbone, HEADS.describe(model.head)
    described = MODELS.describe(backbone)  # type: ignore[arg-type]
    body = body_parameters(model).values()
    if body and not any(parameter.requires_grad for parameter in body):
        described["frozen"] = True
    return {"model": described, **parts}


def _describe_init(init: Init) -> dict[str, Any]:
    described = INITS.describe(init)
    base = getattr(init, "init", None)
    return described if base is None else {**described, "base": _describe_init(base)}


def _describe_tasks(tasks: Tasks) -> dict[str, Any]:
    try:
        return TASKS.describe(tasks)
    except ConfigError:
        sizes = {key: getattr(tasks, key, None) for key in ("way", "shot", "num_query")}
        known = {key: size for key, size in sizes.items() if size is not None}
        return {"name": "in-memory", "description": type(tasks).__name__, **known}


def _plugins(learner: Learner, tasks: Tasks, objective: Objective | None) -> list[str]:
    """Return the modules that register the user's parts."""
    model = learner.model
    models = [model.backbone, model.head] if isinstance(model, Headed) else [model]
    parts = [*models, learner.init, learner.rule, tasks, objective]
    modules = {type(part).__module__ for part in parts if part is not None}
    plugins = sorted(name for name in modules if name.partition(".")[0] != "alfa")
    if "__main__" in plugins:
        warnings.warn(
            "the main program defines a part of this run, so no other program can open the run; "
            "move the part to another module.",
            AlfaWarning,
            stacklevel=2,
        )
    return [name for name in plugins if name != "__main__"]
