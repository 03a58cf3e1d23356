"""From objects back to a configuration, so that a run folder can rebuild them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from alfa.config import Engine, Experiment, Inner, Outer, Test, parse_experiment
from alfa.data import TASKS, Tasks
from alfa.errors import AlfaWarning, ConfigError
from alfa.inits import INITS, Init
from alfa.learner import Learner
from alfa.models import MODELS
from alfa.rules import RULES


def describe_experiment(
    learner: Learner,
    tasks: Tasks,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    **options: Any,
) -> Experiment:
    """The experiment that these objects make up.

    Args:
        learner: its model, init, and rule must be registered.
        tasks: tasks that are not registered can be used only by the program that made them.
        optimizer: recorded by name; a configuration cannot rebuild an arbitrary optimizer.
        scheduler: likewise.
        options: arguments of `alfa.Trainer`; defaults are filled in.

    Raises:
        ConfigError: a part is not registered, or one of its options cannot be stored in a file.
    """
    parts: dict[str, Mapping[str, Any]] = {
        "tasks": _describe_tasks(tasks),
        "model": MODELS.describe(learner.model),  # type: ignore[arg-type]
        "init": _describe_init(learner.init),
        "rule": RULES.describe(learner.rule),
    }
    if optimizer is not None:
        parts["optimizer"] = {"name": "custom", "description": _name_of(optimizer)}
    if scheduler is not None:
        parts["schedule"] = {"name": "custom", "description": _name_of(scheduler)}

    def section(kind: Any, **renamed: Any) -> dict[str, Any]:
        given = {key: options[key] for key in kind.model_fields if key in options}
        return {key: value for key, value in {**given, **renamed}.items() if value is not None}

    # The trainer's `num_tasks` are those of an outer iteration.
    test = {"num_tasks": options.get("num_test_tasks")}
    return parse_experiment(
        {
            "seed": options.get("seed", 0),
            "plugins": _plugins(learner, tasks),
            **parts,
            "inner": section(
                Inner,
                num_steps=learner.num_steps,
                order=learner.order,
                batch_norm=learner.batch_norm,
            ),
            "outer": section(Outer),
            "test": section(Test, **test),
            "engine": section(
                Engine,
                dtype=str(learner.dtype).removeprefix("torch."),
                over_tasks=learner.over_tasks,
            ),
        },
        source="these objects",
    )


def _describe_init(init: Init) -> dict[str, Any]:
    described = INITS.describe(init)
    base = getattr(init, "init", None)
    return described if base is None else {**described, "base": _describe_init(base)}


def _describe_tasks(tasks: Tasks) -> dict[str, Any]:
    try:
        described = TASKS.describe(tasks)
    except ConfigError:
        sizes = {key: getattr(tasks, key, None) for key in ("way", "shot", "num_query")}
        known = {key: size for key, size in sizes.items() if size is not None}
        return {"name": "in-memory", "description": type(tasks).__name__, **known}
    return described


def _name_of(part: object) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _plugins(learner: Learner, tasks: Tasks) -> list[str]:
    """The modules that register a user's own parts."""
    parts = [learner.model, learner.init, learner.rule, tasks]
    modules = sorted({type(part).__module__ for part in parts})
    own = [module for module in modules if module.partition(".")[0] != "alfa"]
    if "__main__" in own:
        warnings.warn(
            "a part of this run is defined in the main program, so no other program can open the "
            "run; move the part to a module of its own.",
            AlfaWarning,
            stacklevel=2,
        )
    return [module for module in own if module != "__main__"]
