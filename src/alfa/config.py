"""What an experiment is, and what is wrong with it.

An experiment is read from TOML, changed by ``key=value`` overrides, and checked as a whole:
all faults are reported at once, each in one sentence.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from alfa.data import TASKS
from alfa.errors import ConfigError, did_you_mean
from alfa.inits import INITS
from alfa.models import MODELS, BatchNorm, OverTasks
from alfa.registry import Registry
from alfa.rules import PRESETS, RULES
from alfa.types import Count, NonNegativeFloat, PositiveFloat

# Where the parts of an experiment are registered.
_REGISTRIES: Mapping[str, Registry[Any]] = {
    "tasks": TASKS,
    "model": MODELS,
    "init": INITS,
    "rule": RULES,
}
# Filled in by the builder, from elsewhere in the experiment, for each kind of part.
_CONTEXT = {
    "model": ("generator",),
    "init": ("generator",),
    "rule": ("num_steps", "generator"),
}
# Keys that mean the same for every part of a kind, and cannot be options of its own.
_RESERVED = {"model": ("name", "weights"), "init": ("name", "around")}
# How many inits may be around another.
_DEEPEST = 10


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Part(BaseModel):
    """A registered part by name, and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Inner(_Section):
    """The inner loop: `num_steps` steps, and an outer gradient of `order`.

    In validation and test there are `num_test_steps`, where that is set.

    `batch_norm` is transductive where queries are normalised by their own statistics, and
    inductive where by those of the support set.
    """

    num_steps: Count = 5
    num_test_steps: Count | None = None
    order: Literal["second", "first"] = "second"
    batch_norm: BatchNorm = "transductive"


class Engine(_Section):
    """How the same figures are computed.

    Nothing here changes them beyond rounding, except for a model that draws random numbers, as
    dropout does: which task gets which of them depends on it.

    `dtype` is that of weights and examples. Tasks run one after the other or all at once
    (`over_tasks`). `memory` says what is kept of
    every step for the outer gradient, everything or only its weights; the outer gradients of
    `tasks_at_once` tasks are computed together. Where either is not given, it is chosen so that
    `memory_budget`, in GB and by default most of what is free, is enough. A run that is resumed
    keeps to what was chosen when it began.

    The state is kept after every validation, after every `checkpoint_seconds`, and after every
    `checkpoint_every` iterations where that is given: a run that is killed loses no more.
    """

    dtype: Literal["float32", "float64"] = "float32"
    over_tasks: OverTasks = "auto"
    memory: Literal["auto", "store", "recompute"] = "auto"
    tasks_at_once: Count | None = None
    memory_budget: PositiveFloat | None = None
    checkpoint_every: Count | None = None
    checkpoint_seconds: PositiveFloat = 120.0


class Outer(_Section):
    """The outer loop (Eqs. 2 and 6): Adam on the mean query loss of `num_tasks` tasks.

    An epoch is `validate_every` iterations; after each one the same `num_val_tasks` tasks are
    used to compare it with the others, by accuracy where the tasks are classification.

    The learning rate is multiplied by `rate_factor` after every `rate_every` iterations. Every
    weight of the init that is a matrix or more has `weight_decay` times itself added to its
    gradient.

    An outer gradient longer than `max_gradient_norm`, if that is set, is scaled down to it.
    A loss or gradient that is not finite stops the run; up to `max_skipped` iterations or
    validations with one are passed over instead, and counted.
    """

    num_iterations: Count = 50_000
    num_tasks: Count = 4
    learning_rate: PositiveFloat = 0.001
    rate_factor: PositiveFloat = 1.0
    rate_every: Count = 10_000
    weight_decay: NonNegativeFloat = 0.0
    max_gradient_norm: PositiveFloat | None = None
    max_skipped: int = Field(default=0, ge=0)
    validate_every: Count = 500
    num_val_tasks: Count = 600


class Test(_Section):
    """The final test, on tasks that training and validation never see.

    The model of the best epoch is tested, and the mean of the outputs of the `ensemble` best ones.
    """

    num_tasks: Count = 600
    ensemble: Count = 5


class Experiment(_Section):
    """Everything that decides a run's figures."""

    preset: Literal["default", "paper", "published-code"] = "default"
    seed: int = Field(default=0, ge=0, lt=2**63)
    plugins: tuple[str, ...] = ()
    tasks: Part
    model: Part
    init: Part = Part(name="learned")
    rule: Part = Part(name="sgd")
    inner: Inner = Inner()
    outer: Outer = Outer()
    test: Test = Test()
    engine: Engine = Engine()

    def fingerprint(self) -> str:
        """The same for experiments whose training goes through the same states."""
        content = to_dict(self)
        for key in ("num_iterations", "max_skipped"):
            content["outer"].pop(key)
        content["test"] = {}
        content.pop("engine")
        # Runs from before there was a choice have the same fingerprint.
        if self.inner.batch_norm == "transductive":
            content["inner"].pop("batch_norm")
        if self.outer.rate_factor == 1:
            content["outer"].pop("rate_factor")
            content["outer"].pop("rate_every")
        if self.outer.weight_decay == 0:
            content["outer"].pop("weight_decay")
        # A run keeps what it has read, wherever it was.
        if "weights" in content["model"]:
            content["model"]["weights"] = True
        if content["model"].get("device_parts") == 1:
            content["model"].pop("device_parts")
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain values for TOML or JSON; what is None is left out, as TOML has no such value."""
    # Every option is spelled out, so there is nothing left for a preset to say.
    content: dict[str, Any] = _without_none(experiment.model_dump(mode="json", exclude={"preset"}))
    return content


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
    content = _changed(content, overrides)
    faults = _import_plugins(content.get("plugins", ()), Path(source).parent)
    experiment: Experiment | None = None
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        faults += [_sentence(fault, Experiment) for fault in error.errors()]
    preset = content.get("preset", "default")
    rule = content.get("rule", {"name": Experiment.model_fields["rule"].get_default().name})
    has_none = isinstance(rule, Mapping) and rule.get("name") != "alfa"
    if str(preset) in PRESETS and preset != "default" and has_none:
        faults.append(f"preset is {preset!r}, but only the rule 'alfa' has presets; leave it out.")
    parts: dict[str, Part] = {}
    faults += _truths(Experiment, content, "")
    for key, field in Experiment.model_fields.items():
        inner, given = field.annotation, content.get(key)
        if isinstance(given, Mapping) and isinstance(inner, type) and issubclass(inner, _Section):
            faults += _truths(inner, given, f"{key}.")
    for key, registry in _REGISTRIES.items():
        given = content.get(key, Experiment.model_fields[key].get_default())
        if isinstance(given, Part):
            given = given.model_dump()
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            defaults = _preset(preset, key, given["name"])
            part, wrong = _check_part(key, {**defaults, **given}, registry)
            faults += wrong
            if part is not None:
                parts[key] = part
    if faults or experiment is None:
        raise ConfigError(_report(source, faults))
    # What the preset stood for is among the options now.
    return experiment.model_copy(update={**parts, "preset": "default"})


def _preset(preset: object, key: str, name: object) -> Mapping[str, Any]:
    """What a preset says of a part."""
    if (key, name) == ("rule", "alfa"):
        return PRESETS.get(str(preset), {})
    if (key, name) == ("model", "resnet12"):
        return {"pooling": "three" if preset == "published-code" else "four"}
    return {}


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


def _changed(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """An experiment with values overridden; what was given stays as it is."""
    new = copy.deepcopy(dict(content))
    for override in overrides:
        _override(new, override)
        if override.partition("=")[0].strip() == "preset":
            # An override comes after what the file spells out, and so does what it stands for.
            for key in ("rule", "model"):
                part = new.get(key)
                if isinstance(part, dict):
                    part.update(_preset(new.get("preset"), key, part.get("name")))
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
    if sections[0] in _REGISTRIES:
        registry, given = _REGISTRIES[sections[0]], content.get(sections[0])
        own = given.get("name") if isinstance(given, Mapping) else None
        name = str(own or section.get_default().name)
        options = registry.options(name) if name in registry else {}
        annotation = options[key].annotation if key in options else None
    else:
        fields = getattr(section.annotation, "model_fields", {})
        annotation = fields[key].annotation if key in fields else None
    return get_origin(annotation) is Literal


def _truths(model: type[BaseModel], given: Mapping[str, Any], prefix: str) -> list[str]:
    """What is wrong where a truth value stands for a number, which it would be taken for."""
    return [
        f"{prefix}{key} is {str(value).lower()}, but must be a number."
        for key, value in given.items()
        if isinstance(value, bool)
        and key in model.model_fields
        and _kinds(model.model_fields[key].annotation) & {int, float}
        and bool not in _kinds(model.model_fields[key].annotation)
    ]


def _kinds(annotation: Any) -> set[Any]:
    """The types of a union and the like."""
    inner = get_args(annotation)
    return set().union(*map(_kinds, inner)) if inner else {annotation}


def _check_part(
    key: str, given: Mapping[str, Any], registry: Registry[Any]
) -> tuple[Part | None, list[str]]:
    """A part with all its options checked and filled in, and what is wrong with them."""
    name, options = given["name"], {k: v for k, v in given.items() if k != "name"}
    faults: list[str] = []
    if key.count(".around") > _DEEPEST:
        return None, [
            f"init has an init around another more than {_DEEPEST} times; leave some out."
        ]
    if name not in registry:
        return None, [
            f"{key}.name is {name!r}, but must be one of {', '.join(registry)}."
            f"{did_you_mean(name, registry)}"
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
        around = options.pop("around", {"name": "learned"})
        if isinstance(around, Mapping) and isinstance(around.get("name"), str):
            inner, wrong = _check_part(f"{key}.around", around, registry)
            faults += wrong
            if inner is not None:
                extra["around"] = inner.model_dump()
        else:
            faults.append(
                f"init.around is {around!r}, but must be the init to attenuate, "
                "such as {name = 'learned'}."
            )
    model = _options_model(name, registry)
    faults += _truths(model, options, f"{key}.")
    try:
        checked = model.model_validate(options)
    except ValidationError as error:
        return None, faults + [_sentence(f, model, prefix=key) for f in error.errors()]
    try:
        dumped = _without_none(checked.model_dump(mode="json"))
    except PydanticSerializationError as error:
        return None, [*faults, f"{key} {name!r} has an option that no file can hold: {error}."]
    return Part(name=name, **dumped, **extra), faults


def _options_model(name: str, registry: Registry[Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        key: (
            Any if parameter.annotation is parameter.empty else parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for key, parameter in registry.options(name).items()
        if key not in _CONTEXT.get(registry.kind, ())
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


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def _sentence(fault: Any, model: type[BaseModel], prefix: str = "") -> str:
    """What is wrong, the value got, and what is allowed."""
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
            listed = f"; known: {', '.join(known)}" if known else ""
            return f"{where} is not a known key{listed}.{did_you_mean(path[-1], known)}"
        case "missing":
            return f"{where} is missing."
        case "unexpected_keyword_argument":
            return f"{where} is not a known key."
        case "model_type" | "model_attributes_type" if model is Experiment:
            return f"{where} is {fault['input']!r}, but must be a table, such as {{name = '...'}}."
        case "sequence_str" | "is_instance_of":
            return f"{where} is {fault['input']!r}, but must be a list."
        case "union_tag_not_found" | "union_tag_invalid" | "model_attributes_type":
            return (
                f"{where} is {fault['input']!r}, but must say where the rate comes from: "
                "source = 'constant' (with a value), 'learned' or, for ALFA, 'generated'."
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


def _report(source: str, faults: list[str]) -> str:
    if len(faults) == 1:
        return f"{source}: {faults[0]}"
    lines = "".join(f"\n  - {fault}" for fault in faults)
    return f"{source} has {len(faults)} faults:{lines}"
