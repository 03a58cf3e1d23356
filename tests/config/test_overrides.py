"""Overrides of the values of an experiment."""

from __future__ import annotations

from typing import Any

import pytest

from alfa.config import compose, load_experiment, parse_experiment, to_dict
from alfa.errors import ConfigError

BASE: dict[str, Any] = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [8]}}


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("outer.num_iterations=1_000", lambda e: e.outer.num_iterations == 1000),
        ("optimizer.learning_rate=1e-2", lambda e: e.optimizer.options["learning_rate"] == 0.01),
        ("model.hidden=[3, 4]", lambda e: e.model.options["hidden"] == [3, 4]),
        ("rule.name=learned", lambda e: e.rule.name == "learned"),
        ("rule.name='learned'", lambda e: e.rule.name == "learned"),
        ("rule.per_parameter_decay=true", lambda e: e.rule.options["per_parameter_decay"] is True),
        (
            "rule.alpha={source='constant', value=0.5}",
            lambda e: e.rule.options["alpha"] == {"source": "constant", "value": 0.5},
        ),
        ("rule.alpha.source=learned", lambda e: e.rule.options["alpha"]["source"] == "learned"),
        ("inner.order = first", lambda e: e.inner.order == "first"),
        ("seed=7", lambda e: e.seed == 7),
        ("preset=published-code", lambda e: e.rule.options["generator_depth"] == 2),
    ],
)
def test_overrides_take_every_kind_of_value(override: str, read) -> None:
    before = compose("sinusoid")
    assert not read(before)
    assert read(compose("sinusoid", overrides=[override]))


def test_the_last_of_several_overrides_holds() -> None:
    overrides = ["seed=1", "inner.num_steps=3", "seed=2"]
    experiment = compose("sinusoid", method="maml", overrides=overrides)
    assert (experiment.seed, experiment.inner.num_steps) == (2, 3)


@pytest.mark.parametrize("override", ["seed", "=3", " =3", ""])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="--set takes key=value"):
        compose("sinusoid", method="maml", overrides=[override])


def test_an_override_below_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="'seed' is a value, not a section"):
        compose("sinusoid", method="maml", overrides=["seed=1", "seed.more=1"])


def test_a_preset_set_later_replaces_the_pooling_that_a_run_spells_out(write) -> None:
    content = {**BASE, "model": {"name": "resnet12"}, "rule": {"name": "alfa"}}
    path = write(to_dict(parse_experiment({**content, "preset": "published-code"})))
    assert load_experiment(path).model.options["pooling"] == "three"
    for preset in ("paper", "default"):
        assert load_experiment(path, [f"preset={preset}"]).model.options["pooling"] == "four"


def test_a_preset_set_later_replaces_what_a_run_spells_out(write) -> None:
    path = write(to_dict(compose("sinusoid")))
    options = load_experiment(path, ["preset=paper"]).rule.options
    assert options["beta_form"] == "factor"
    assert options["generator_start"] == "random"
    back = load_experiment(write(to_dict(load_experiment(path, ["preset=paper"]))))
    assert back.rule.options == options


def test_none_is_a_word_where_it_is_one_of_those_allowed() -> None:
    words = ["rule.state_gradient=none"]
    assert compose("sinusoid", overrides=words).rule.options["state_gradient"] == "none"
    with pytest.raises(ConfigError, match=r"inner.order is 'none', but must be 'second' or 'first"):
        compose("sinusoid", overrides=["inner.order=none"])
    # For other keys, it removes the value.
    changed = compose("sinusoid", overrides=["inner.num_test_steps=7", "inner.num_test_steps=none"])
    assert changed.inner.num_test_steps is None


def test_none_in_a_missing_section_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^the experiment: model\.name is missing\.$"):
        parse_experiment({"tasks": BASE["tasks"]}, overrides=["model.hidden=none"])
