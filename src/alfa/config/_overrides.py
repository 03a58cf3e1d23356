"""Values of an experiment that are given beside it."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_origin

from alfa.config._experiment import Experiment
from alfa.config._parts import REGISTRIES, preset_of
from alfa.errors import ConfigError


def changed(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """An experiment with values overridden; what was given stays as it is."""
    new = copy.deepcopy(dict(content))
    for override in overrides:
        _override(new, override)
        if override.partition("=")[0].strip() == "preset":
            # An override comes after what the file spells out, and so does what it stands for.
            for key in ("rule", "model"):
                part = new.get(key)
                if isinstance(part, dict):
                    part.update(preset_of(new.get("preset"), key, part.get("name")))
    return new


def _override(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"--set takes key=value, such as outer.num_iterations=100, but got {override!r}."
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
    *sections, last = key.strip().split(".")
    # TOML has no word for the absence of a value, but for some keys this is one of their words.
    remove = text.strip() == "none" and not _is_choice(content, sections, last)
    place = content
    for section in sections:
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            raise ConfigError(f"--set {override}: {section!r} is a value, not a section.")
    if remove:
        place.pop(last, None)
    else:
        place[last] = value


def _is_choice(content: Mapping[str, Any], sections: Sequence[str], key: str) -> bool:
    """Whether a key takes one of some words."""
    if len(sections) != 1 or sections[0] not in Experiment.model_fields:
        return False
    section = Experiment.model_fields[sections[0]]
    if sections[0] in REGISTRIES:
        registry, given = REGISTRIES[sections[0]], content.get(sections[0])
        own = given.get("name") if isinstance(given, Mapping) else None
        name = str(own or section.get_default().name)
        options = registry.options(name) if name in registry else {}
        annotation = options[key].annotation if key in options else None
    else:
        fields = getattr(section.annotation, "model_fields", {})
        annotation = fields[key].annotation if key in fields else None
    return get_origin(annotation) is Literal
