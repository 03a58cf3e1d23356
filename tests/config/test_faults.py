"""The errors of an experiment: all of them, one sentence each."""

from __future__ import annotations

import re
from typing import Any

import pytest

from alfa.config import compose, load_experiment, parse_experiment
from alfa.errors import ConfigError
from alfa.inits import INITS

BASE: dict[str, Any] = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [8]}}


def _faults(content: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(content)
    return str(caught.value)


def test_all_faults_are_reported_at_once() -> None:
    message = _faults(
        {
            "tasks": {"name": "sinusoids", "num_support": 10},
            "model": {"name": "mlp", "hiden": [8]},
            "init": {"name": "lerned"},
            "rule": {"name": "alfa", "alpha": {"source": "genrated"}},
            "outer": {"num_tasks": 0, "num_task": 0.1},
            "inner": {"order": "third"},
            "optimiser": {"name": "adam"},
            "seed": -1,
        }
    )
    first, *lines = message.splitlines()
    assert first == "the experiment has 9 errors:"
    assert len(lines) == 9
    assert all(line.startswith("  - ") and line.endswith(("?", ".")) for line in lines)
    for fault in (
        "tasks.name is 'sinusoids', but must be one of images, in-memory, meta-dataset, sinusoid. "
        "Did you mean 'sinusoid'?",
        "model.hiden is not a known key; known: name, weights, frozen, hidden. "
        "Did you mean 'hidden'?",
        f"init.name is 'lerned', but must be one of {', '.join(INITS)}. Did you mean 'learned'?",
        "rule.alpha is {'source': 'genrated'}, but must be a table with the source of the rate",
        "outer.num_tasks is 0, but must be greater than or equal to 1.",
        "outer.num_task is not a known key; known: num_iterations, num_tasks, max_gradient_norm, ",
        "Did you mean 'num_tasks'?",
        "inner.order is 'third', but must be 'second' or 'first'.",
        "optimiser is not a known key; known: preset, seed, ",
        "seed is -1, but must be greater than or equal to 0.",
    ):
        assert fault in message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rule": {"name": "sdg"}}, "rule.name is 'sdg'.* Did you mean 'sgd'[?]"),
        (
            {"rule": {"name": "sgd", "learning_rat": 1.0}},
            "rule.learning_rat is not a known key.* Did you mean 'learning_rate'[?]",
        ),
        (
            {"rule": {"name": "sgd", "learning_rate": 0}},
            r"rule.learning_rate is 0, but must be greater than 0\.",
        ),
        (
            {"rule": {"name": "sgd", "learning_rate": float("nan")}},
            r"rule.learning_rate is nan, but must be a finite number\.",
        ),
        (
            {"rule": {"name": "sgd", "learning_rate": "fast"}},
            "rule.learning_rate is 'fast', but must be a valid number",
        ),
        (
            {"rule": {"name": "learned", "alpha": {"source": "generated"}}},
            "rule.alpha is .* must be a table with the source of the rate",
        ),
        (
            {"rule": {"name": "alfa", "alpha": {"source": "learned", "strat": 0.1}}},
            r"rule.alpha.*strat is not a known key\.",
        ),
        (
            {"rule": {"name": "alfa", "beta": {"source": "constant"}}},
            r"rule.beta.*value is missing\.",
        ),
        ({"rule": {"name": "alfa", "alpha": 0.1}}, "rule.alpha is 0.1, but must"),
        ({"rule": {"name": "alfa", "state": ["weights", "losses"]}}, r"rule.state.1 is 'losses'"),
        ({"model": {"name": "mlp", "hidden": [8, 0]}}, "model.hidden.1 is 0, but must be greater"),
        ({"model": {"name": "mlp", "hidden": 8}}, "model.hidden is 8, but must be"),
        ({"model": {"hidden": [8]}}, r"model.name is missing\."),
        ({"model": {"name": 5}}, "model.name is 5, but must be a valid string"),
        ({"rule": "sgd"}, "rule is 'sgd', but must be"),
        ({"outer": {"num_iterations": 1.5}}, "outer.num_iterations is 1.5, but must be"),
        ({"outer": 3}, "outer is 3, but must be"),
        ({"test": {"num_tasks": 0}}, "test.num_tasks is 0, but must be greater"),
        ({"rulle": {"name": "sgd"}}, "rulle is not a known key.* Did you mean 'rule'[?]"),
        ({"preset": "papers"}, "preset is 'papers', but must be 'default', 'paper' or"),
        (
            {"preset": [], "rule": {"name": "alfa"}},
            r"preset is \[\], but must be 'default', 'paper' or",
        ),
        ({"init": {"name": "attenuated", "base": "learned"}}, "init.base is 'learned', but"),
        (
            {"init": {"name": "attenuated", "base": {"name": "fxed"}}},
            "init.base.name is 'fxed'.* Did you mean 'fixed'[?]",
        ),
        ({"init": {"name": "learned", "adapt": [5]}}, r"init.adapt.0 is 5, but must be"),
        ({"init": {"name": "learned", "adapt": 5}}, "init.adapt is 5, but must be"),
        ({"rule": {"name": "alfa", "learned": True}}, "rule.learned is not a known key"),
        ({"model": {"name": "mlp", "constant": 1}}, "model.constant is not a known key"),
        ({"generated": 1}, "generated is not a known key"),
        ({"inner": {"learned": 1}}, "inner.learned is not a known key"),
        ({"plugins": "math"}, "plugins is 'math', but must be"),
        ({"plugins": [5]}, "plugins.0 is 5, but must be"),
        ({"plugins": 5}, "plugins is 5, but must be"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_a_single_fault_is_one_line(change: dict[str, Any], sentence: str) -> None:
    message = _faults({**BASE, **change})
    assert "\n" not in message
    assert message.startswith("the experiment: ")
    assert re.search(sentence, message)


def test_tasks_and_model_are_required() -> None:
    assert _faults({}).splitlines()[1:] == ["  - tasks is missing.", "  - model is missing."]


def test_faults_name_the_file(write) -> None:
    path = write({**BASE, "seed": -1})
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{path}: seed is -1")


@pytest.mark.parametrize(
    "key",
    ["seed", "outer.num_tasks", "optimizer.learning_rate", "tasks.num_support", "inner.num_steps"],
)
def test_a_truth_value_is_no_number(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} is true, but must be a number\."):
        compose("sinusoid", overrides=[f"{key}=true"])


def test_a_truth_value_is_one_where_it_is_asked_for() -> None:
    experiment = compose("strokes", overrides=["tasks.augment=true"])
    assert experiment.tasks.options["augment"] is True
