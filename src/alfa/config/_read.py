"""From a file, a name or plain values to an experiment, or to all that is wrong with it."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from alfa.config._experiment import Experiment, Part, Section
from alfa.config._faults import report, sentence, truths
from alfa.config._overrides import changed
from alfa.config._parts import REGISTRIES, check_part, preset_of
from alfa.errors import ConfigError, did_you_mean
from alfa.rules import PRESETS


def load_experiment(source: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment from a TOML file, or a built-in one by name.

    Args:
        source: a path that ends in ``.toml``, or a name such as ``"sinusoid-alfa"``.
        overrides: ``"outer.num_iterations=100"`` and the like; values are TOML, or else text.

    Raises:
        ConfigError: says everything that is wrong with it.
    """
    return parse_experiment(_read(source), source=str(source), overrides=overrides)


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
    content = changed(content, overrides)
    faults = _import_plugins(content.get("plugins", ()), Path(source).parent)
    experiment: Experiment | None = None
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        faults += [sentence(fault, Experiment) for fault in error.errors()]
    preset = content.get("preset", "default")
    rule = content.get("rule", {"name": Experiment.model_fields["rule"].get_default().name})
    has_none = isinstance(rule, Mapping) and rule.get("name") != "alfa"
    if str(preset) in PRESETS and preset != "default" and has_none:
        faults.append(f"preset is {preset!r}, but only the rule 'alfa' has presets; leave it out.")
    parts: dict[str, Part] = {}
    faults += truths(Experiment, content, "")
    for key, field in Experiment.model_fields.items():
        inner, given = field.annotation, content.get(key)
        if isinstance(given, Mapping) and isinstance(inner, type) and issubclass(inner, Section):
            faults += truths(inner, given, f"{key}.")
    for key, registry in REGISTRIES.items():
        given = content.get(key, Experiment.model_fields[key].get_default())
        if isinstance(given, Part):
            given = given.model_dump()
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            defaults = preset_of(preset, key, given["name"])
            part, wrong = check_part(key, {**defaults, **given}, registry)
            faults += wrong
            if part is not None:
                parts[key] = part
    if faults or experiment is None:
        raise ConfigError(report(source, faults))
    # What the preset stood for is among the options now.
    return experiment.model_copy(update={**parts, "preset": "default"})


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


def builtin_experiments() -> list[str]:
    """The names of the experiments that come with the package."""
    folder = resources.files("alfa") / "experiments"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name[-5:] == ".toml")


def check_builtin(name: str, *, otherwise: str = "") -> None:
    """Raise unless an experiment of this name comes with the package.

    Args:
        name: of the experiment.
        otherwise: what else could be given, for the error.

    Raises:
        ConfigError: says which there are.
    """
    known = builtin_experiments()
    if name not in known:
        raise ConfigError(
            f"there is no built-in experiment {name!r}; there are {', '.join(known)}{otherwise}."
            f"{did_you_mean(name, known)}"
        )


def _read(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".toml":
        check_builtin(str(source), otherwise=", or give the path of a .toml file")
        text = (resources.files("alfa") / "experiments" / f"{source}.toml").read_text()
    else:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
            raise ConfigError(f"cannot read the experiment {path}: {reason}.") from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid TOML: {error}.") from None
