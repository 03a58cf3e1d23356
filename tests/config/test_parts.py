"""Parts by name, their options, and presets."""

from __future__ import annotations

from typing import Any

import pytest

from alfa.build._build import build_learner, build_tasks
from alfa.config import compose, load_experiment, parse_experiment
from alfa.errors import ConfigError
from alfa.inits import Attenuated, FixedInit, LearnedInit
from alfa.rules import ALFA, Constant, Learned

BASE: dict[str, Any] = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [8]}}


def _learner(content: dict[str, Any]):
    experiment = parse_experiment({**BASE, **content})
    return build_learner(experiment, build_tasks(experiment))


@pytest.mark.parametrize(
    ("preset", "pooling"), [("default", "four"), ("paper", "four"), ("published-code", "three")]
)
def test_a_preset_chooses_the_pooling_of_resnet12_too(preset: str, pooling: str) -> None:
    settings = ["model.num_blocks=none", "model.name=resnet12", f"preset={preset}"]
    assert compose("strokes", overrides=settings).model.options["pooling"] == pooling
    content = {**BASE, "model": {"name": "resnet12"}, "rule": {"name": "alfa"}, "preset": preset}
    assert parse_experiment(content).model.options["pooling"] == pooling
    own = {**content, "model": {"name": "resnet12", "pooling": "four"}}
    assert parse_experiment(own).model.options["pooling"] == "four"


def test_a_preset_fills_in_what_the_rule_leaves_open() -> None:
    rule = {"name": "alfa", "beta_form": "decay"}
    options = parse_experiment({**BASE, "preset": "paper", "rule": rule}).rule.options
    assert options["beta_form"] == "decay"
    assert options["state_gradient"] == "full"
    assert options["generator_start"] == "random"
    assert options["generator_depth"] == 3


def test_a_preset_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="preset is 'paper', but no part of this experiment defines it"
    ):
        parse_experiment({**BASE, "preset": "paper", "rule": {"name": "sgd"}})
    without = {key: value for key, value in BASE.items() if key != "rule"}
    with pytest.raises(
        ConfigError, match="preset is 'paper', but no part of this experiment defines it"
    ):
        parse_experiment({**without, "preset": "paper"})


def test_a_preset_beside_a_rule_that_is_no_table_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^the experiment: rule is 'alfa', but must be a table"):
        parse_experiment({**BASE, "rule": "alfa"}, overrides=["preset=paper"])


def test_the_published_code_has_a_generator_of_two_layers() -> None:
    learner = _learner({"preset": "published-code", "rule": {"name": "alfa"}})
    assert isinstance(learner.rule, ALFA)
    assert [type(module).__name__ for module in learner.rule.g_phi] == ["Linear", "ReLU", "Linear"]


def test_rates_are_built_from_their_source() -> None:
    rates = {"alpha": {"source": "constant", "value": 0.5}, "beta": {"source": "learned"}}
    rule = _learner({"rule": {"name": "learned", **rates}}).rule
    assert rule.alpha0.constant == Constant(0.5).value
    assert rule.beta0.values.shape == (5, 4)
    per_step = {"source": "learned", "per_layer": Learned(per_layer=False).per_layer}
    assert _learner({"rule": {"name": "learned", "alpha": per_step}}).rule.alpha0.values.shape == (
        5,
        1,
    )


def test_an_attenuated_init_goes_around_a_learned_one_by_default() -> None:
    init = _learner({"init": {"name": "attenuated"}}).init
    assert isinstance(init, Attenuated)
    assert isinstance(init.init, LearnedInit)


def test_an_attenuated_init_goes_around_any_other() -> None:
    base = {"name": "fixed", "adapt": ["linear2.*"]}
    init = _learner({"init": {"name": "attenuated", "base": base}}).init
    assert isinstance(init.init, FixedInit)
    assert list(init.layers) == ["linear2.weight", "linear2.bias"]


def test_only_the_layers_that_are_named_are_adapted() -> None:
    learner = _learner({"init": {"name": "learned", "adapt": ["*.bias"]}})
    assert list(learner.init.layers) == ["linear1.bias", "linear2.bias"]


def test_a_single_pattern_needs_no_list() -> None:
    learner = _learner({"init": {"name": "learned", "adapt": "*.bias"}})
    assert list(learner.init.layers) == ["linear1.bias", "linear2.bias"]


def test_a_pattern_that_matches_no_layer_is_refused_when_built() -> None:
    with pytest.raises(ConfigError, match=r"'head\.\*', which matches no parameter"):
        _learner({"init": {"name": "learned", "adapt": ["head.*"]}})


def test_inits_that_are_nested_too_deep_are_refused(write) -> None:
    init = {"name": "learned"}
    for _ in range(300):
        init = {"name": "attenuated", "base": init}
    with pytest.raises(ConfigError, match="init must nest at most 10 inits"):
        load_experiment(write({**BASE, "init": init}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("init.name=l2f", r"init.name is 'l2f'.*alfa calls l2f 'attenuated'\.$"),
        ("init.name=MAML", r"alfa calls MAML 'learned'\.$"),
        ("rule.name=maml", r"alfa calls maml 'sgd'\.$"),
        ("init.name=learnt", r"Did you mean 'learned'\?$"),
    ],
)
def test_names_of_the_literature_are_understood(change: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_experiment(BASE, overrides=[change])


def test_what_every_part_takes_is_told_among_its_options() -> None:
    with pytest.raises(ConfigError, match=r"init\.of is not a known key; known: name, base"):
        parse_experiment({**BASE, "init": {"name": "attenuated", "of": "fixed"}})
    with pytest.raises(ConfigError, match=r"rule.nam is.*known: name, .*Did you mean 'name'\?"):
        parse_experiment({**BASE, "rule": {"name": "sgd", "nam": "alfa"}})


def test_what_is_attenuated_is_learned_unless_it_says_otherwise() -> None:
    init = {"name": "attenuated", "base": {"adapt": ["*.weight"]}}
    base = parse_experiment({**BASE, "init": init}).init.options["base"]
    assert base == {"name": "learned", "adapt": ["*.weight"]}
    with pytest.raises(ConfigError, match=r"init\.base is 'fixed', but must be the init to"):
        parse_experiment({**BASE, "init": {"name": "attenuated", "base": "fixed"}})
