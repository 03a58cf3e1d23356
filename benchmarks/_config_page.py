"""The reference of configurations, docs/config.md, written from what they are checked against."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from alfa.config import Engine, Experiment, Inner, Outer, Test
from alfa.data import TASKS
from alfa.inits import INITS
from alfa.models import MODELS
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.registry import Registry
from alfa.rules import RULES

HEAD = """# Configuration

An experiment is a TOML file, or composed of a dataset, a method, and a backbone
(`alfa train cifar-fs --method maml --backbone resnet12`), and
`--set section.key=value` changes any value of it. What is not given has its default. All that is
wrong with a configuration is told at once, and a run folder holds the whole of it, with all
defaults spelled out, as `config.toml`. (`python benchmarks/api.py` writes this page.)

```toml
[tasks]
name = "images"          # 5-way 5-shot tasks of a dataset that `alfa data prepare` has prepared
dataset = "cifar-fs"

[model]
name = "conv4"

[init]                   # where adaptation starts: here MAML's initialization, ...
name = "attenuated"      # ... attenuated for every task, as in L2F
base = { name = "learned" }

[rule]                   # which rates a step uses
name = "alfa"

[outer]
num_iterations = 50_000
num_tasks = 2
```

| method | `[init]` | `[rule]` |
| --- | --- | --- |
| MAML | `name = "learned"` | `name = "sgd"` |
| ALFA + MAML | `name = "learned"` | `name = "alfa"` |
| MAML + L2F | `name = "attenuated"` | `name = "sgd"` |
| ALFA + MAML + L2F | `name = "attenuated"` | `name = "alfa"` |
| ALFA + random initialization | `name = "fixed"` | `name = "alfa"`, `per_parameter_decay = true` |
| Proto-MAML | `name = "prototype-head"` | `name = "sgd"` |
| the same with L2F | `name = "attenuated"`, `base = { name = "prototype-head" }` | any |
| learned rates per step and layer | `name = "learned"` | `name = "learned"` |

On the command line, `--set init.name=attenuated --set init.base.name=prototype-head` says the
same as the row before the last. Which of them to choose is a
[question](faq.md#methods) with figures for an answer."""

REGISTRIES: Mapping[str, Registry[Any]] = {
    "tasks": TASKS,
    "model": MODELS,
    "init": INITS,
    "rule": RULES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}
TITLES = {
    "tasks": "where tasks come from",
    "model": "what is adapted",
    "init": "where adaptation starts",
    "rule": "which rates a step uses",
    "optimizer": "the outer loop's optimizer",
    "schedule": "the outer loop's learning rate over time",
}
SECTIONS: Mapping[str, type[BaseModel]] = {
    "inner": Inner,
    "outer": Outer,
    "test": Test,
    "engine": Engine,
}
# What the checks know, and no documentation of a part says.
ALSO = {
    "model": "`weights` of any model is the path of a file of safetensors to begin with.",
    "init": "`base`, of `attenuated` alone, is what it attenuates; by default `learned`.",
    "rule": (
        'A rate (`alpha`, `beta`) is a table: `{ source = "constant", value = 0.01 }`, or '
        '`{ source = "learned" }` or, for `alfa`, `{ source = "generated" }`, the last two '
        "with `start`, `per_step = true` and `per_layer = true`. `preset`, above, chooses options "
        "of `alfa` together."
    ),
}


def page() -> str:
    """The text of the page."""
    parts = [HEAD, "## The experiment", *_experiment()]
    for key, registry in REGISTRIES.items():
        parts.append(f"## `[{key}]`, {TITLES[key]}")
        parts += [ALSO[key]] if key in ALSO else []
        for name in registry:
            part = registry.get(name)
            # Others are a user's own.
            if part.__module__.startswith("alfa."):
                known = registry.options(name).items()
                options = {k: v for k, v in known if k not in registry.context}
                parts += _part(name, part, options)
    for key, section in SECTIONS.items():
        parts += [f"## `[{key}]`", inspect.getdoc(section) or "", _defaults(section)]
    return (
        "\n\n".join(part.replace("``", "`") if part[:1] != "#" else part for part in parts) + "\n"
    )


def _experiment() -> list[str]:
    described = {
        "preset": "options of ALFA and ResNet12 together: `default`, `paper` or `published-code` "
        "([differences](differences.md))",
        "seed": "decides everything that is random",
        "plugins": "modules that register parts of your own ([a rule of your own](extend.md))",
    }
    fields = {key: Experiment.model_fields[key].get_default() for key in described}
    rows = [f"| `{key}` | {_value(fields[key])} | {told} |" for key, told in described.items()]
    return ["\n".join(["| key | default | |", "| --- | --- | --- |", *rows])]


def _part(name: str, part: type, options: Mapping[str, inspect.Parameter]) -> list[str]:
    text = inspect.getdoc(part) or ""
    told = re.split(r"\n(?=(?:Args|Raises|Example):\n)", text)[0].strip()
    parts = [f'### `name = "{name}"`', told]
    if options:
        known = _arguments(part)
        rows = [f"| `{key}` | {_value(p.default)} | {known[key]} |" for key, p in options.items()]
        parts.append("\n".join(["| key | default | |", "| --- | --- | --- |", *rows]))
    return parts


def _arguments(part: type) -> dict[str, str]:
    """What a class, or one that it is made from, says of its arguments."""
    found: dict[str, str] = {}
    for base in reversed(part.__mro__):
        found_args = re.search(r"^Args:\n((?:[ ]{4}.*\n?)+)", inspect.getdoc(base) or "", re.M)
        for entry in re.split(r"\n(?=[ ]{4}\w)", found_args[1]) if found_args else ():
            key, _, told = entry.strip().partition(": ")
            found[key] = " ".join(told.split()).rstrip(".")
    return found


def _defaults(section: type[BaseModel]) -> str:
    rows = [
        f"| `{key}` | {_value(field.get_default())} | {', '.join(_choices(field.annotation))} |"
        for key, field in section.model_fields.items()
    ]
    return "\n".join(["| key | default | one of |", "| --- | --- | --- |", *rows])


def _choices(annotation: Any) -> list[str]:
    """The words that a key may be, where it is one of some."""
    is_word = get_origin(annotation) is Literal
    return [_value(word) for word in get_args(annotation)] if is_word else []


def _value(value: Any) -> str:
    """As TOML has it; what is None is not given."""
    if value is None:
        return "-"
    if dataclasses.is_dataclass(value):
        return f'`{{ source = "{value.source}" }}`'  # type: ignore[attr-defined]
    return f"`{json.dumps(value)}`"
