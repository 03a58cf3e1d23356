"""The registered parts of an experiment, and their options."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from alfa.config._experiment import Part, without_none
from alfa.config._faults import boolean_faults, sentence
from alfa.data import TASKS
from alfa.errors import did_you_mean
from alfa.inits import INITS
from alfa.models import HEADS, MODELS
from alfa.objectives import OBJECTIVES
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.registry import Registry
from alfa.rules import RULES

# The registries of the parts of an experiment.
REGISTRIES: Mapping[str, Registry[Any]] = {
    "tasks": TASKS,
    "model": MODELS,
    "head": HEADS,
    "init": INITS,
    "rule": RULES,
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}
# Keys with the same meaning for all parts of a kind, which cannot be options of a part.
_RESERVED = {"model": ("name", "weights", "frozen"), "init": ("name", "base")}
# Names in the literature.
_ALIASES = {
    "init": {
        "l2f": "attenuated",
        "maml": "learned",
        "random": "fixed",
        "proto-maml": "prototype-head",
    },
    "rule": {"maml": "sgd"},
}
_MAX_NESTED_INITS = 10


def preset_options(preset: object, key: str, name: object) -> Mapping[str, Any]:
    """Return the options that a preset sets for a part."""
    registry = REGISTRIES.get(key)
    if registry is None or name not in registry:
        return {}
    presets: Mapping[str, Mapping[str, Any]] = getattr(registry.get(str(name)), "presets", {})
    return presets.get(str(preset), {})


def check_part(
    key: str, given: Mapping[str, Any], registry: Registry[Any]
) -> tuple[Part | None, list[str]]:
    """Validate a part and fill in its default options; return it and its faults."""
    name, options = given["name"], {k: v for k, v in given.items() if k != "name"}
    if key.count(".base") > _MAX_NESTED_INITS:
        return None, [f"init must nest at most {_MAX_NESTED_INITS} inits; remove some."]
    if name not in registry:
        alias = _ALIASES.get(registry.kind, {}).get(str(name).lower())
        hint = f" alfa calls {name} {alias!r}." if alias else did_you_mean(name, registry)
        return None, [f"{key}.name is {name!r}, but must be one of {', '.join(registry)}.{hint}"]
    reserved = _RESERVED.get(registry.kind, ("name",))
    if taken := [option for option in registry.options(name) if option in reserved]:
        return None, [
            f"{key} {name!r} has the option {taken[0]}, but configurations reserve this name; "
            "rename the option."
        ]
    faults: list[str] = []
    extra: dict[str, Any] = {}
    wraps_init = registry.wraps(name, "init")
    if key == "model" and "frozen" in options:
        extra["frozen"] = options.pop("frozen")
        if not isinstance(extra["frozen"], bool):
            faults.append(f"model.frozen must be true or false, got {extra['frozen']!r}.")
    if key == "model" and "weights" in options:
        extra["weights"] = options.pop("weights")
        if not isinstance(extra["weights"], str):
            faults.append(
                f"model.weights is {extra['weights']!r}, but must be the path of a safetensors "
                "file."
            )
    if wraps_init:
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
                f"init.base is {base!r}, but must be the init to wrap, "
                "such as {name = 'learned'}."
            )
    model = _options_model(name, registry)
    faults += boolean_faults(model, options, f"{key}.")
    try:
        checked = model.model_validate(options)
    except ValidationError as error:
        own = [n for n in reserved if n != "base" or wraps_init]
        return None, faults + [sentence(f, model, prefix=key, also=own) for f in error.errors()]
    try:
        dumped = without_none(checked.model_dump(mode="json"))
    except PydanticSerializationError as error:
        return None, [*faults, f"{key} {name!r} has an option that cannot be stored: {error}."]
    return Part(name=name, **dumped, **extra), faults


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
    """Return the options of a validated part as the objects that its constructor takes."""
    model = _options_model(part.name, registry)
    # The base of an init and the weights of a model are not options of its constructor.
    given = {key: value for key, value in part.options.items() if key in model.model_fields}
    checked = model.model_validate(given)
    return {key: getattr(checked, key) for key in model.model_fields}
