"""MkDocs hooks that generate the reference of commands and of configurations."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from alfa.cli.main import app
from alfa.config import Engine, Experiment, Inner, Outer, Test
from alfa.data import TASKS
from alfa.inits import INITS
from alfa.models import MODELS
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.registry import Registry
from alfa.rules import RULES

REGISTRIES: Mapping[str, tuple[Registry[Any], str]] = {
    "tasks": (TASKS, "the distribution of tasks"),
    "model": (MODELS, "the backbone and its last layer"),
    "init": (INITS, "the starting weights of a task"),
    "rule": (RULES, "the rates of an inner step"),
    "optimizer": (OPTIMIZERS, "the optimizer of the outer loop"),
    "schedule": (SCHEDULES, "the learning rate of the outer loop"),
}
SECTIONS: Mapping[str, type[BaseModel]] = {
    "inner": Inner,
    "outer": Outer,
    "test": Test,
    "engine": Engine,
}
KEYS = {
    "preset": "options of ALFA and ResNet12 together: `default`, `paper`, or `published-code` "
    "([differences](differences.md))",
    "seed": "the seed of all randomness",
    "plugins": "Python modules that register user-defined parts ([extend](extend.md))",
}
NOTES = {
    "model": "Every model accepts `weights`, the path of a safetensors file with initial weights.",
    "init": "`attenuated` also accepts `base`, the init that it attenuates (default: `learned`).",
    "rule": (
        'A rate (`alpha`, `beta`) is a table: `{ source = "constant", value = 0.01 }`, '
        '`{ source = "learned" }`, or, for `alfa`, `{ source = "generated" }`. The last two accept '
        "`start`, `per_step`, and `per_layer`. `preset` selects several options of `alfa`."
    ),
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholders of the reference pages."""
    for placeholder, text in (("commands", commands), ("configuration", configuration)):
        marker = f"<!-- {placeholder} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, "\n\n".join(text()))
    return markdown


def commands() -> Iterator[str]:
    """Describe every command and its options."""
    yield from _command(typer.main.get_command(app), ["alfa"])


def _command(command: Any, words: list[str]) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from _command(child, [*words, name])
        return
    yield f"## `{' '.join(words)}`"
    yield inspect.cleandoc(command.help or "")
    rows = [
        f"| {', '.join(f'`{word}`' for word in _names(option))} "
        f"| {_default(option)} | {_cell(getattr(option, 'help', None) or '')} |"
        for option in command.params
    ]
    if rows:
        yield "\n".join(["| option | default | |", "| --- | --- | --- |", *rows])


def _names(option: Any) -> list[str]:
    is_argument = option.param_type_name == "argument"
    return [option.opts[0].upper()] if is_argument else list(option.opts)


def _default(option: Any) -> str:
    if option.required:
        return "required"
    is_empty = option.default in (None, False, (), []) or callable(option.default)
    return "" if is_empty else f"`{option.default}`"


def configuration() -> Iterator[str]:
    """Describe every section and option of a configuration."""
    yield "## The experiment"
    fields = Experiment.model_fields
    rows = [f"| `{key}` | {_value(fields[key].get_default())} | {t} |" for key, t in KEYS.items()]
    yield _table("| key | default | |", rows)
    for key, (registry, title) in REGISTRIES.items():
        yield f"## `[{key}]`: {title}"
        if key in NOTES:
            yield NOTES[key]
        for name in registry:
            yield from _part(name, registry)
    for key, section in SECTIONS.items():
        yield f"## `[{key}]`"
        yield _prose(inspect.getdoc(section) or "")
        yield _table("| key | default | choices |", list(_fields(section)))


def _part(name: str, registry: Registry[Any]) -> Iterator[str]:
    part = registry.get(name)
    yield f'### `name = "{name}"`'
    text = inspect.getdoc(part) or ""
    yield _prose(re.split(r"\n(?=(?:Args|Attributes|Raises|Examples):\n)", text)[0].strip())
    help_of = _arguments(part)
    rows = [
        f"| `{key}` | {_value(parameter.default)} | {_cell(help_of[key])} |"
        for key, parameter in registry.options(name).items()
        if key not in registry.context
    ]
    if rows:
        yield _table("| key | default | |", rows)


def _arguments(part: type) -> dict[str, str]:
    """Read the `Args:` sections of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(part.__mro__):
        section = re.search(r"^Args:\n((?:[ ]{4}.*\n?)+)", inspect.getdoc(base) or "", re.M)
        for entry in re.split(r"\n(?=[ ]{4}\w)", section[1]) if section else ():
            key, _, text = entry.strip().partition(": ")
            found[key] = " ".join(text.split()).rstrip(".")
    return found


def _fields(section: type[BaseModel]) -> Iterator[str]:
    for key, field in section.model_fields.items():
        is_choice = get_origin(field.annotation) is Literal
        choices = [_value(word) for word in get_args(field.annotation)] if is_choice else []
        yield f"| `{key}` | {_value(field.get_default())} | {', '.join(choices)} |"


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, "| --- | --- | --- |", *rows])


def _cell(text: str) -> str:
    return _prose(" ".join(text.split())).replace("|", "\\|")


def _prose(text: str) -> str:
    return text.replace("``", "`")


def _value(value: Any) -> str:
    """Format a default value as TOML; None means that the key is omitted."""
    if value is None:
        return ""
    if dataclasses.is_dataclass(value):
        return f'`{{ source = "{value.source}" }}`'  # type: ignore[attr-defined]
    return f"`{json.dumps(value)}`"
