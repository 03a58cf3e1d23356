"""The references of public names and of configurations, written from their documentation.

    python benchmarks/api.py    writes docs/api.md and docs/config.md

A test holds the pages against what this would write.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import _config_page

import alfa
from alfa._io import write_atomic

PAGE, CONFIG = Path("docs/api.md"), Path("docs/config.md")
# In the order in which they are met, and whatever else is public behind them.
GROUPS = {
    "Classify and predict": ("FewShotClassifier", "FewShotRegressor"),
    "Train and evaluate": ("Trainer", "evaluate", "Run", "tune"),
    "The inner loop": ("Learner", "adapt"),
    "Update rules": (
        *("Rule", "Rates", "ALFA", "SGD", "LearnedRates", "Generated", "Learned", "register_rule"),
    ),
    "Initializations": (
        *("Init", "LearnedInit", "FixedInit", "Attenuated", "PrototypeHead", "register_init"),
    ),
    "Models": ("Conv4", "ResNet12", "MLP", "register_model"),
    "Optimizers": ("register_optimizer", "register_schedule"),
    "Tasks and losses": ("Tasks", "Episode", "Sinusoids", "register_tasks", "cross_entropy", "mse"),
    "Plain things": ("Params", "AlfaError"),
}
# Others that are met on the way, by where they are imported from.
ELSEWHERE = {
    "What comes back": ("alfa.learner.Outcome", "alfa.learner.Adapted"),
    "Parts of your own": (
        "alfa.ops.per_task",
        "alfa.testing.check_rule",
        "alfa.testing.check_init",
    ),
}
ALSO = {
    "alfa.data": "tasks, datasets, and how to prepare them",
    "alfa.inits": "initializations",
    "alfa.models": "models, and how any module runs on a stack of tasks",
    "alfa.rules": "update rules and their parts",
    "alfa.testing": "the contracts of rules and initializations, for your own",
    "alfa.training": "the outer loop, and pretraining",
    "alfa.evaluation": "evaluation and comparison",
    "alfa.runs": "run folders",
}
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")


def page() -> str:
    """The text of the page."""
    parts = [
        "# Reference",
        "The public names of `alfa`, from their own documentation (`python benchmarks/api.py` "
        "writes this page). Whatever has a default is given by its name.",
    ]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += described(name)
    rest = set(alfa.__all__) - {name for names in GROUPS.values() for name in names}
    assert not rest, f"{rest} is in no group"
    for title, names in ELSEWHERE.items():
        parts.append(f"## {title}")
        for name in names:
            parts += described(name)
    parts += ["## More", "Everything else is imported from its package:"]
    for module, what in ALSO.items():
        names = ", ".join(f"`{n}`" for n in sorted(importlib.import_module(module).__all__))
        parts.append(f"**`{module}`**, {what}: {names}.")
    return "\n\n".join(parts) + "\n"


def described(name: str) -> list[str]:
    """A public name: how it is called, and what its documentation says."""
    module, _, own = name.rpartition(".")
    thing = getattr(importlib.import_module(module) if module else alfa, own)
    text = inspect.getdoc(thing) or ""
    if name.startswith("register_") and name != "register_rule":
        # One documentation serves all of them.
        text = (
            text.split("\nExample:\n")[0].rstrip() + "\n\nThere is an example at `register_rule`."
        )
    head = re.split(rf"\n(?={'|'.join(_SECTIONS)}:\n)", text)
    parts = [f"### `{name}`", f"```text\n{called(own, thing)}\n```", head[0].strip()]
    for section in head[1:]:
        title, _, body = section.partition(":\n")
        body = inspect.cleandoc(body)
        if title == "Example":
            parts.append(f"```pycon\n{body}\n```")
        elif title in ("Args", "Attributes"):
            parts.append(f"{'Arguments' if title == 'Args' else title}:\n\n" + listed(body))
        else:
            parts.append(f"{title}: " + " ".join(body.split()))
    if inspect.isclass(thing) and (methods := own_methods(thing)):
        parts.append("Methods:\n\n" + "\n".join(methods))
    return [part.replace("``", "`") if part[:3] != "```" else part for part in parts]


def _without_addresses(signature: inspect.Signature) -> inspect.Signature:
    """A signature whose defaults print the same in every process."""

    class Ellipsis:
        def __repr__(self) -> str:
            return "..."

    parameters = [
        parameter.replace(default=Ellipsis()) if " at 0x" in repr(parameter.default) else parameter
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def own_methods(thing: type) -> list[str]:
    """What our own classes add, and the first sentence on each."""
    found = []
    for name in sorted(vars(thing)):
        method = inspect.getattr_static(thing, name)
        told = inspect.getdoc(getattr(thing, name))
        if (
            # What scikit-learn adds to every estimator is told there.
            name.startswith(("_", "set_score_request"))
            or isinstance(method, property)
            or not callable(getattr(thing, name))
            or not told
        ):
            continue
        words = list(inspect.signature(getattr(thing, name)).parameters)
        words = [word for word in words if word != "self"]
        found.append(f"- `{name}({', '.join(words)})`: {told.split(chr(10) + chr(10))[0]}")
    return [" ".join(line.split()) for line in found]


def called(name: str, thing: object) -> str:
    """Its signature, an argument a line where it is long."""
    try:
        found = _without_addresses(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    words = [str(p.replace(annotation=inspect.Parameter.empty)) for p in found.parameters.values()]
    keywords = [p.kind is p.KEYWORD_ONLY for p in found.parameters.values()]
    if any(keywords):
        words.insert(keywords.index(True), "*")
    line = f"{name}({', '.join(words)})"
    return line if len(line) <= 88 else f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def listed(body: str) -> str:
    """Entries ``name: what it is`` as a list."""
    items: list[str] = []
    for line in body.splitlines():
        if re.match(r"\w+: ", line):
            name, _, what = line.partition(": ")
            items.append(f"- `{name}`: {what}")
        elif items:
            items[-1] += f" {line.strip()}"
    return "\n".join(items)


if __name__ == "__main__":
    write_atomic(PAGE, page().encode())
    write_atomic(CONFIG, _config_page.page().encode())
