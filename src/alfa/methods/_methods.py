"""The methods that an experiment can name, each with a reference to its paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alfa.errors import check_choice

_MAML = (
    "Finn, Abbeel, and Levine. Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks. "
    "ICML 2017."
)
_L2F = "Baik, Hong, and Lee. Learning to Forget for Meta-Learning. CVPR 2020."
_PROTO_MAML = (
    "Triantafillou et al. Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few "
    "Examples. ICLR 2020."
)
_ALFA = "Baik, Choi, Choi, Kim, and Lee. Meta-Learning with Adaptive Hyperparameters. NeurIPS 2020."


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

    def apply(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return an experiment, before validation, with the choices of this method."""
        chosen = {"init": self.init, "rule": self.rule, **self.parts}
        for key, part in (("head", self.head), ("objective", self.objective)):
            if part is not None:
                chosen[key] = part
        others = {key: part for key, part in content.items() if key not in ("head", "objective")}
        return merge({**others, **{key: dict(part) for key, part in chosen.items()}}, self.settings)


def merge(content: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Replace values in sections; keep a value in place of a section for the validation."""
    merged = dict(content)
    for key, values in sections.items():
        section = merged.get(key, {})
        if values and isinstance(section, Mapping):
            merged[key] = {**section, **values}
    return merged


_LEARNED = {"name": "learned"}
_FIXED = {"name": "fixed"}
_ATTENUATED = {"name": "attenuated", "base": _LEARNED}
_PROTOTYPES = {"name": "prototype-head"}
_CONSTANT_RATES = {"name": "sgd"}
_GENERATED_RATES = {"name": "alfa"}
# A random init is no prior, so the outer loop learns a decay of each weight (section 3.3).
_GENERATED_DECAYS = {**_GENERATED_RATES, "per_parameter_decay": True}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("random", "Random Init", _ALFA, _FIXED, _CONSTANT_RATES),
        Method("alfa+random", "ALFA + Random Init", _ALFA, _FIXED, _GENERATED_DECAYS),
        Method("maml", "MAML", _MAML, _LEARNED, _CONSTANT_RATES),
        Method("alfa+maml", "ALFA + MAML", _ALFA, _LEARNED, _GENERATED_RATES),
        Method("maml+l2f", "MAML + L2F", _L2F, _ATTENUATED, _CONSTANT_RATES),
        Method("alfa+maml+l2f", "ALFA + MAML + L2F", _ALFA, _ATTENUATED, _GENERATED_RATES),
        Method("proto-maml", "Proto-MAML", _PROTO_MAML, _PROTOTYPES, _CONSTANT_RATES),
        Method("alfa+proto-maml", "ALFA + Proto-MAML", _ALFA, _PROTOTYPES, _GENERATED_RATES),
    )
}


def get_method(name: str) -> Method:
    """Return a method by name, or raise ConfigError."""
    check_choice("method", name, METHODS)
    return METHODS[name]
