"""From a file or plain values to an experiment, or to all that is wrong with it."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from alfa.config._experiment import Experiment, Part, Section
from alfa.config._faults import report, sentence, truths
from alfa.config._overrides import changed
from alfa.config._parts import REGISTRIES, check_part, preset_of
from alfa.errors import ConfigError
from alfa.optim import SCHEDULES


def load_experiment(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment from a TOML file.

    Args:
        path: the file.
        overrides: ``"outer.num_iterations=100"`` and the like; values are TOML, or else text.

    Raises:
        ConfigError: says everything that is wrong with it.
    """
    return parse_experiment(read_toml(Path(path)), source=str(path), overrides=overrides)


def parse_experiment(
    content: Mapping[str, Any],
    *,
    source: str = "the experiment",
    overrides: Iterable[str] = (),
) -> Experiment:
    """Check an experiment given as plain values.

    Args:
        content: the experiment.
        source: where it comes from, for errors and plugins.
        overrides: of its values, as `load_experiment` takes them.

    Raises:
        ConfigError: says everything that is wrong with it.
    """
    content = with_default_names(changed(content, overrides))
    faults = _import_plugins(content.get("plugins", ()), Path(source).parent)
    experiment: Experiment | None = None
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        faults += [sentence(fault, Experiment) for fault in error.errors()]
    preset = content.get("preset", "default")
    parts: dict[str, Part] = {}
    faults += truths(Experiment, content, "")
    for key, field in Experiment.model_fields.items():
        inner, given = field.annotation, content.get(key)
        if isinstance(given, Mapping) and isinstance(inner, type) and issubclass(inner, Section):
            faults += truths(inner, given, f"{key}.")
    names: dict[str, str] = {}
    for key, registry in REGISTRIES.items():
        given = content.get(key, Experiment.model_fields[key].get_default())
        if isinstance(given, Part):
            given = given.model_dump()
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            names[key] = given["name"]
            defaults = preset_of(preset, key, given["name"])
            part, wrong = check_part(key, {**defaults, **given}, registry)
            faults += wrong
            if part is not None:
                parts[key] = part
    has_preset = any(preset_of(preset, key, name) for key, name in names.items())
    if experiment is not None and preset != "default" and not has_preset:
        faults.append(f"preset is {preset!r}, but no part of this experiment has it; leave it out.")
    if faults or experiment is None:
        raise ConfigError(report(source, faults))
    if "period" in SCHEDULES.options(parts["schedule"].name):
        # Spelled out, so that a run that is trained further keeps its schedule.
        period = parts["schedule"].options.get("period", experiment.outer.num_iterations)
        parts["schedule"] = Part(**{**parts["schedule"].model_dump(), "period": period})
    # The options of the preset are spelled out now.
    return experiment.model_copy(update={**parts, "preset": "default"})


def with_default_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """Name the default part if only some of its options are given, as in ``optimizer.eps=0.1``."""
    defaults = {key: Experiment.model_fields[key].get_default() for key in REGISTRIES}
    named = {
        key: {"name": part.name, **content[key]}
        for key, part in defaults.items()
        if isinstance(part, Part) and isinstance(content.get(key), Mapping)
    }
    return {**content, **named}


def _import_plugins(plugins: object, folder: Path) -> list[str]:
    """Import the modules that register a user's own parts.

    They are looked for in the current folder and in that of the experiment, too.

    Returns:
        What is wrong with them; what is not a list of names, the configuration finds itself.
    """
    faults = []
    for plugin in plugins if isinstance(plugins, list | tuple) else ():
        if not isinstance(plugin, str):
            continue
        known = list(sys.path)
        sys.path[:0] = [os.getcwd(), str(folder.resolve())]
        try:
            if not all(part.isidentifier() for part in plugin.split(".")):
                raise ImportError("that is not the name of a module")
            importlib.import_module(plugin)
        # Whatever a user's module raises, the sentence must say which module it was.
        except Exception as error:
            reason = str(error) if isinstance(error, ImportError) else repr(error)
            where = ""
            if isinstance(error, ModuleNotFoundError):
                where = (
                    f"; it is looked for in the current folder, in {folder.resolve()}, and where "
                    "PYTHONPATH says"
                )
            faults.append(f"plugins has {plugin!r}, which cannot be imported: {reason}{where}.")
        finally:
            sys.path[:] = known
    return faults


def read_toml(path: Path) -> dict[str, Any]:
    """The content of an experiment file, before it is validated."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise ConfigError(f"cannot read the experiment {path}: {reason}.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
