"""Read an experiment from a file or plain values, apply overrides, and validate it."""

import copy
import importlib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_origin

from pydantic import ValidationError

from alfa.config._experiment import Experiment, Part
from alfa.config._faults import boolean_faults, report, sentence
from alfa.config._parts import REGISTRIES, check_part, preset_options
from alfa.errors import ConfigError
from alfa.optim import SCHEDULES


def load_experiment(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Load an experiment from a TOML file; raise one ConfigError that lists all errors.

    An override looks like ``"outer.num_iterations=100"``. A value that is not TOML is a string.
    """
    return parse_experiment(read_toml(Path(path)), source=str(path), overrides=overrides)


def parse_experiment(
    content: Mapping[str, Any], *, source: str = "the experiment", overrides: Iterable[str] = ()
) -> Experiment:
    """Validate plain values as an experiment; raise one ConfigError that lists all errors.

    Messages start with `source`, the file or name of the experiment.
    """
    content = _with_default_names(_with_overrides(content, overrides))
    faults = import_plugins(content.get("plugins", ()), Path(source).parent)
    experiment: Experiment | None = None
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        faults += [sentence(fault, Experiment) for fault in error.errors()]
    faults += boolean_faults(Experiment, content)
    preset = content.get("preset", "default")
    parts: dict[str, Part] = {}
    has_preset = False
    for key, registry in REGISTRIES.items():
        given = content.get(key, Experiment.model_fields[key].get_default())
        if isinstance(given, Part):
            given = given.model_dump()
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            defaults = preset_options(preset, key, given["name"])
            has_preset = has_preset or bool(defaults)
            part, wrong = check_part(key, {**defaults, **given}, registry)
            faults += wrong
            if part is not None:
                parts[key] = part
    if experiment is not None and preset != "default" and not has_preset:
        faults.append(f"preset is {preset!r}, but no part of this experiment defines it; omit it.")
    if faults or experiment is None:
        raise ConfigError(report(source, faults))
    if "period" in SCHEDULES.options(parts["schedule"].name):
        # Store the period, so that extending the run does not change its schedule.
        period = parts["schedule"].options.get("period", experiment.outer.num_iterations)
        parts["schedule"] = Part(**{**parts["schedule"].model_dump(), "period": period})
    # The parts now contain the options of the preset.
    return experiment.model_copy(update={**parts, "preset": "default"})


def _with_default_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """Add the default part's name if only options are given, as in ``optimizer.eps=0.1``."""
    defaults = {key: Experiment.model_fields[key].get_default() for key in REGISTRIES}
    named = {
        key: {"name": part.name, **content[key]}
        for key, part in defaults.items()
        if isinstance(part, Part) and isinstance(content.get(key), Mapping)
    }
    return {**content, **named}


def import_plugins(plugins: object, folder: Path) -> list[str]:
    """Import the user's plugin modules, also from the experiment's folder; return faults.

    The validation of the experiment reports `plugins` if it is not a list of names.
    """
    faults = []
    for plugin in plugins if isinstance(plugins, list | tuple) else ():
        if not isinstance(plugin, str):
            continue
        search_path = list(sys.path)
        sys.path[:0] = [os.getcwd(), str(folder.resolve())]
        try:
            if not all(part.isidentifier() for part in plugin.split(".")):
                raise ImportError("this is not the name of a module")
            importlib.import_module(plugin)
        # A user's module can raise any exception.
        except Exception as error:
            reason = str(error) if isinstance(error, ImportError) else repr(error)
            if isinstance(error, ModuleNotFoundError):
                reason += (
                    f"; alfa searches the current folder, {folder.resolve()}, and the folders in "
                    "PYTHONPATH"
                )
            faults.append(f"plugins contains {plugin!r}, which cannot be imported: {reason}.")
        finally:
            sys.path[:] = search_path
    return faults


def read_toml(path: Path) -> dict[str, Any]:
    """Read an experiment file without validation."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise ConfigError(f"cannot read the experiment {path}: {reason}.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


def _with_overrides(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of an experiment with overridden values."""
    new = copy.deepcopy(dict(content))
    for override in overrides:
        _override(new, override)
        if override.partition("=")[0].strip() == "preset":
            # A preset in an override replaces options in the file.
            for key in ("rule", "model"):
                part = new.get(key)
                if isinstance(part, dict):
                    part.update(preset_options(new.get("preset"), key, part.get("name")))
    return new


def _override(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"--set takes key=value, such as outer.num_iterations=100, got {override!r}."
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
    *sections, last = key.strip().split(".")
    # `none` removes a value, because TOML has no null; some keys accept the word itself.
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
    """Return True if a key accepts one of several words."""
    if len(sections) != 1 or sections[0] not in Experiment.model_fields:
        return False
    field = Experiment.model_fields[sections[0]]
    known: Mapping[str, Any] = getattr(field.annotation, "model_fields", {})
    if registry := REGISTRIES.get(sections[0]):
        given = content.get(sections[0])
        name = given.get("name") if isinstance(given, Mapping) else None
        name = str(name or getattr(field.get_default(), "name", None))
        known = registry.options(name) if name in registry else {}
    return key in known and get_origin(known[key].annotation) is Literal
