"""Few-shot methods as recipes, each with a reference to its paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alfa.errors import check_choice


@dataclass(frozen=True)
class Method:
    """A recipe that composes an experiment from tasks and a backbone.

    Attributes:
        name: the name that an experiment uses.
        title: the name in tables.
        reference: the paper.
        init: the section of the experiment.
        rule: the section of the experiment.
        settings: values to set in other sections, such as ``{"inner": {"num_steps": 1}}``.
        head: the section of the experiment; None for the model's own last layer.
        objective: the section of the experiment; None for the query loss.
        parts: other sections to replace, such as the optimizer.
        backbones: options of the model by its name, for backbones that need them.
    """

    name: str
    title: str
    reference: str
    init: Mapping[str, Any]
    rule: Mapping[str, Any] = field(default_factory=lambda: {"name": "sgd"})
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    head: Mapping[str, Any] | None = None
    objective: Mapping[str, Any] | None = None
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backbones: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def apply(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return an experiment, before validation, with the choices of this method."""
        chosen = {"init": self.init, "rule": self.rule, **self.parts}
        for key, part in (("head", self.head), ("objective", self.objective)):
            if part is not None:
                chosen[key] = part
        others = {key: part for key, part in content.items() if key not in ("head", "objective")}
        others |= {key: dict(part) for key, part in chosen.items()}
        return merge(merge(others, {"model": self._model_options(content)}), self.settings)

    def _model_options(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        model = content.get("model")
        name = model.get("name") if isinstance(model, Mapping) else None
        return self.backbones.get(str(name), {})


def merge(content: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Replace values in sections; keep a value in place of a section for the validation."""
    merged = dict(content)
    for key, values in sections.items():
        section = merged.get(key, {})
        if values and isinstance(section, Mapping):
            merged[key] = {**section, **values}
    return merged


METHODS: dict[str, Method] = {}


def register_method(method: Method) -> Method:
    """Register a recipe, so that experiments can name it."""
    METHODS[method.name] = method
    return method


def get_method(name: str) -> Method:
    """Return a method by name, or raise ConfigError."""
    check_choice("method", name, METHODS)
    return METHODS[name]
