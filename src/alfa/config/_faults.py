"""Error messages for experiments, one sentence each."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from alfa.config._experiment import Engine, Experiment, Inner, Outer, Test
from alfa.errors import did_you_mean
from alfa.optim import Pretraining

_SECTIONS = {Inner, Outer, Test, Engine, Pretraining}


def boolean_faults(model: type[Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Report booleans in place of numbers, because pydantic would convert them."""
    faults = []
    for key, value in given.items():
        annotation = _annotations(model).get(key)
        kinds = _kinds(annotation)
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            faults.append(f"{prefix}{key} is {str(value).lower()}, but must be a number.")
        for section in kinds & _SECTIONS if isinstance(value, Mapping) else ():
            faults += boolean_faults(section, value, f"{prefix}{key}.")
    return faults


def _annotations(model: type[Any]) -> dict[str, Any]:
    """Return the types of the keys of a section."""
    if issubclass(model, BaseModel):
        return {key: field.annotation for key, field in model.model_fields.items()}
    return {field.name: field.type for field in dataclasses.fields(model)}


def _kinds(annotation: Any) -> set[Any]:
    """Return the types inside a union or another annotation."""
    inner = get_args(annotation)
    return set().union(*map(_kinds, inner)) if inner else {annotation}


def sentence(
    fault: Any, model: type[BaseModel], prefix: str = "", *, also: Sequence[str] = ()
) -> str:
    """Describe a fault: the key, its value, and the valid values.

    Args:
        fault: an error from pydantic.
        model: the model that rejected the value.
        prefix: the key under which the experiment contains the model.
        also: valid keys in addition to the model's.
    """
    # The tag of a union is not a key of the configuration.
    tags, rates = ("constant", "learned", "generated"), ("alpha", "beta")
    places = [str(place) for place in fault["loc"]]
    path = [
        place
        for place, before in zip(places, ["", *places], strict=False)
        if not (place in tags and before in rates)
    ]
    where = ".".join([*([prefix] if prefix else []), *path])
    match fault["type"]:
        case "extra_forbidden":
            known = _known_keys(model, path[:-1])
            if len(path) == 1:
                known = [*also, *known]
            listed = f"; known: {', '.join(known)}" if known else ""
            return f"{where} is not a known key{listed}.{did_you_mean(path[-1], known)}"
        case "missing":
            return f"{where} is missing."
        case "unexpected_keyword_argument" if path[0] == "pretraining" and model is Experiment:
            known = list(_annotations(Pretraining))
            hint = did_you_mean(path[-1], known)
            return f"{where} is not a known key; known: {', '.join(known)}.{hint}"
        case "unexpected_keyword_argument":
            return f"{where} is not a known key."
        case "value_error":
            # The text of a ConfigError, which states the argument and the value.
            return f"{where}: {fault['ctx']['error']}"
        case "model_type" | "model_attributes_type" if model is Experiment:
            message = "a table, such as {name = '...'}"
        case "sequence_str" | "is_instance_of":
            message = "a list"
        case "union_tag_not_found" | "union_tag_invalid" | "model_attributes_type":
            message = (
                "a table with the source of the rate: source = 'constant' (with a value), "
                "'learned', or, for ALFA, 'generated'"
            )
        case _:
            message = fault["msg"][0].lower() + fault["msg"][1:]
            message = message.removeprefix("input ").removeprefix("should ").removeprefix("be ")
    return f"{where} is {fault['input']!r}, but must be {message}."


def _known_keys(model: type[BaseModel], path: list[str]) -> list[str]:
    for place in path:
        field = model.model_fields.get(place)
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def report(source: str, faults: list[str]) -> str:
    if len(faults) == 1:
        return f"{source}: {faults[0]}"
    lines = "".join(f"\n  - {fault}" for fault in faults)
    return f"{source} has {len(faults)} errors:{lines}"
