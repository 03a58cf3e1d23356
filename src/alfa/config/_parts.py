"""The registered parts of an experiment, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from alfa.config._experiment import Part, without_none
from alfa.config._faults import sentence, truths
from alfa.data import TASKS
from alfa.errors import did_you_mean
from alfa.inits import INITS
from alfa.models import MODELS
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.registry import Registry
from alfa.rules import RULES

# Where the parts of an experiment are registered.
REGISTRIES: Mapping[str, Registry[Any]] = {
    "tasks": TASKS,
    "model": MODELS,
    "init": INITS,
    "rule": RULES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}
# Keys that mean the same for every part of a kind, and cannot be options of its own.
_RESERVED = {"model": ("name", "weights"), "init": ("name", "base")}
# What the literature calls them.
_KNOWN_AS = {
    "init": {
        "l2f": "attenuated",
        "maml": "learned",
        "random": "fixed",
        "proto-maml": "prototype-head",
    },
    "rule": {"maml": "sgd"},
}
# How many inits may be around another.
_DEEPEST = 10


def preset_of(preset: object, key: str, name: object) -> Mapping[str, Any]:
    """The options that a preset sets for a part."""
    registry = REGISTRIES.get(key)
    if registry is None or name not in registry:
        return {}
    presets: Mapping[str, Mapping[str, Any]] = getattr(registry.get(str(name)), "presets", {})
    return presets.get(str(preset), {})


def check_part(
    key: str, given: Mapping[str, Any], registry: Registry[Any]
) -> tuple[Part | None, list[str]]:
    """A part with all its options checked and filled in, and what is wrong with them."""
    name, options = given["name"], {k: v for k, v in given.items() if k != "name"}
    faults: list[str] = []
    if key.count(".base") > _DEEPEST:
        return None, [
            f"init has an init around another more than {_DEEPEST} times; leave some out."
        ]
    if name not in registry:
        return None, [
            f"{key}.name is {name!r}, but must be one of {', '.join(registry)}."
            f"{_known_as(registry.kind, name) or did_you_mean(name, registry)}"
        ]
    extra: dict[str, Any] = {}
    reserved = _RESERVED.get(registry.kind, ("name",))
    if taken := [option for option in registry.options(name) if option in reserved]:
        return None, [
            f"{key} {name!r} has an option called {taken[0]}, which means something else in a "
            "configuration; give it another name."
        ]
    if key == "model" and "weights" in options:
        extra["weights"] = options.pop("weights")
        if not isinstance(extra["weights"], str):
            faults.append(
                f"model.weights is {extra['weights']!r}, but must be the path of a file of "
                "safetensors."
            )
    if registry.wraps(name, "init"):
        base = options.pop("base", {})
        if isinstance(base, Mapping):
            base = {"name": "learned", **base}
        if isinstance(base, Mapping) and isinstance(base["name"], str):
            inner, wrong = check_part(f"{key}.base", base, registry)
            faults += wrong
            if inner is not None:
                extra["base"] = inner.model_dump()
        else:
            faults.append(
                f"init.base is {base!r}, but must be the init to attenuate, "
                "such as {name = 'learned'}."
            )
    model = _options_model(name, registry)
    faults += truths(model, options, f"{key}.")
    try:
        checked = model.model_validate(options)
    except ValidationError as error:
        own = ["name", *(["weights"] if key == "model" else [])]
        own += ["base"] if registry.wraps(name, "init") else []
        return None, faults + [sentence(f, model, prefix=key, also=own) for f in error.errors()]
    try:
        dumped = without_none(checked.model_dump(mode="json"))
    except PydanticSerializationError as error:
        return None, [*faults, f"{key} {name!r} has an option that no file can hold: {error}."]
    return Part(name=name, **dumped, **extra), faults


def _known_as(kind: str, name: object) -> str:
    """What a method of the literature is called here; nothing for what is none."""
    found = _KNOWN_AS.get(kind, {}).get(str(name).lower())
    return f" What others call {name} is {found!r}." if found else ""


def _options_model(name: str, registry: Registry[Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        key: (
            Any if parameter.annotation is parameter.empty else parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for key, parameter in registry.options(name).items()
        if key not in registry.context
    }
    strict = ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
    return create_model(name, __config__=strict, **fields)


def options_of(part: Part, registry: Registry[Any]) -> dict[str, Any]:
    """The options of a checked part as the objects that its constructor takes."""
    model = _options_model(part.name, registry)
    # What an init is around, and a model's weights, are not for the constructor.
    given = {key: value for key, value in part.options.items() if key in model.model_fields}
    checked = model.model_validate(given)
    return {key: getattr(checked, key) for key in model.model_fields}
