"""Experiments: read, changed, checked as a whole, and told apart."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from alfa.build import build_learner, build_tasks
from alfa.config import builtin_experiments, load_experiment, parse_experiment, to_dict
from alfa.errors import ConfigError
from alfa.inits import Attenuated, FixedInit, LearnedInit
from alfa.rules import ALFA, RULES, Constant, Learned

BASE: dict[str, Any] = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [8]}}


@pytest.fixture
def write(tmp_path: Path):
    """Write an experiment's text or values to a file."""

    def make(content: str | bytes | dict[str, Any], name: str = "my.toml") -> Path:
        path = tmp_path / name
        if isinstance(content, dict):
            content = tomli_w.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def _learner(content: dict[str, Any]):
    experiment = parse_experiment({**BASE, **content})
    return build_learner(experiment, build_tasks(experiment))


def _faults(content: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(content)
    return str(caught.value)


def test_every_builtin_experiment_comes_with_both_methods() -> None:
    tasks = ["cifar-fs", "miniimagenet", "sinusoid", "strokes", "varied"]
    both = [f"{task}-{m}" for task in tasks for m in ("alfa", "maml")]
    # The demo is a model to use, and compared with nothing.
    assert builtin_experiments() == sorted([*both, "strokes-demo"])


@pytest.mark.parametrize("name", builtin_experiments())
def test_builtin_experiments_load_and_build(name: str, spots) -> None:
    if name.startswith("sinusoid"):
        changes = ["model.hidden=[8]"]
    elif name.startswith("varied"):
        changes = ["tasks.dataset=spots", "model.num_blocks=2", "model.filters=4"]
    else:
        # The dataset need not be there; the classes of this one have nine images.
        changes = ["tasks.dataset=spots", "tasks.size=none", "tasks.way=3", "tasks.num_query=2"]
        changes += ["model.num_blocks=2", "model.filters=4"]
    experiment = load_experiment(name, changes)
    learner = build_learner(experiment, build_tasks(experiment))
    assert learner.num_steps == experiment.inner.num_steps == 5
    assert experiment.rule.name == ("sgd" if name.endswith("maml") else "alfa")


@pytest.mark.parametrize(
    ("preset", "pooling"), [("default", "four"), ("paper", "four"), ("published-code", "three")]
)
def test_a_preset_chooses_the_pooling_of_resnet12_too(preset: str, pooling: str) -> None:
    settings = ["model.num_blocks=none", "model.name=resnet12", f"preset={preset}"]
    assert load_experiment("strokes-alfa", settings).model.options["pooling"] == pooling
    content = {**BASE, "model": {"name": "resnet12"}, "rule": {"name": "alfa"}, "preset": preset}
    assert parse_experiment(content).model.options["pooling"] == pooling
    own = {**content, "model": {"name": "resnet12", "pooling": "four"}}
    assert parse_experiment(own).model.options["pooling"] == "four"


def test_the_demo_serves_for_single_drawings_and_any_number_of_classes() -> None:
    experiment = load_experiment("strokes-demo")
    assert experiment.init.name == "prototype-head"
    assert experiment.inner.batch_norm == "inductive"
    assert experiment.tasks.options["dataset"] == "strokes-free"


@pytest.mark.parametrize("name", ["cifar-fs-alfa", "miniimagenet-maml"])
def test_image_experiments_follow_the_papers_protocol(name: str) -> None:
    experiment = load_experiment(name)
    outer, test = experiment.outer, experiment.test
    assert (outer.num_iterations, outer.validate_every) == (100 * 500, 500)
    assert (outer.num_tasks, outer.num_val_tasks, outer.learning_rate) == (2, 600, 0.001)
    assert (test.num_tasks, test.ensemble) == (600, 5)
    options = {"way": 5, "shot": 5, "num_query": 15, "augment": False}
    assert options.items() <= experiment.tasks.options.items()


def test_a_file_is_read_and_what_it_leaves_out_is_filled_in(write) -> None:
    experiment = load_experiment(write({**BASE, "seed": 3, "inner": {"num_steps": 2}}))
    assert experiment.seed == 3
    assert experiment.inner.num_steps == 2
    assert experiment.outer.learning_rate == 0.001
    assert experiment.init.name == "learned"
    assert experiment.rule.options == {"learning_rate": 0.01, "weight_decay": 0.0}
    assert experiment.tasks.options == {"num_support": 10, "num_query": 100}


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("outer.num_iterations=1_000", lambda e: e.outer.num_iterations == 1000),
        ("outer.learning_rate=1e-2", lambda e: e.outer.learning_rate == 0.01),
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
    before = load_experiment("sinusoid-alfa")
    assert not read(before)
    assert read(load_experiment("sinusoid-alfa", [override]))


def test_the_last_of_several_overrides_holds() -> None:
    overrides = ["seed=1", "inner.num_steps=3", "seed=2"]
    experiment = load_experiment("sinusoid-maml", overrides)
    assert (experiment.seed, experiment.inner.num_steps) == (2, 3)


@pytest.mark.parametrize("override", ["seed", "=3", " =3", ""])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="--set takes key=value"):
        load_experiment("sinusoid-maml", [override])


def test_an_override_below_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="'seed' is a value, not a section"):
        load_experiment("sinusoid-maml", ["seed=1", "seed.more=1"])


def test_all_faults_are_reported_at_once() -> None:
    message = _faults(
        {
            "tasks": {"name": "sinusoids", "num_support": 10},
            "model": {"name": "mlp", "hiden": [8]},
            "init": {"name": "lerned"},
            "rule": {"name": "alfa", "alpha": {"source": "genrated"}},
            "outer": {"num_tasks": 0, "learnin_rate": 0.1},
            "inner": {"order": "third"},
            "optimizer": {"name": "adam"},
            "seed": -1,
        }
    )
    first, *lines = message.splitlines()
    assert first == "the experiment has 9 faults:"
    assert len(lines) == 9
    assert all(line.startswith("  - ") and line.endswith(("?", ".")) for line in lines)
    for fault in (
        "tasks.name is 'sinusoids', but must be one of images, meta-dataset, sinusoid. "
        "Did you mean 'sinusoid'?",
        "model.hiden is not a known key; known: hidden. Did you mean 'hidden'?",
        "init.name is 'lerned', but must be one of attenuated, fixed, learned, prototype-head, "
        "zero-head. Did you mean 'learned'?",
        "rule.alpha is {'source': 'genrated'}, but must say where the rate comes from",
        "outer.num_tasks is 0, but must be greater than or equal to 1.",
        "outer.learnin_rate is not a known key; known: num_iterations, num_tasks, learning_rate, ",
        "Did you mean 'learning_rate'?",
        "inner.order is 'third', but must be 'second' or 'first'.",
        "optimizer is not a known key; known: preset, seed, ",
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
            "rule.alpha is .* must say where the rate comes from",
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
        ({"init": {"name": "attenuated", "around": "learned"}}, "init.around is 'learned', but"),
        (
            {"init": {"name": "attenuated", "around": {"name": "fxed"}}},
            "init.around.name is 'fxed'.* Did you mean 'fixed'[?]",
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


def test_a_misspelt_builtin_experiment_has_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"'sinusoid-alpha';.* mean 'sinusoid-alfa'\?$"):
        load_experiment("sinusoid-alpha")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml: No such file or directory\."):
        load_experiment(tmp_path / "gone.toml")


def test_a_folder_is_not_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*folder\.toml: Is a directory\."):
        load_experiment(tmp_path / "folder.toml")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "{a=" * 5000])
def test_toml_that_is_nested_too_deep_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"my\.toml is not valid TOML: maximum recursion depth"):
        load_experiment(tmp_path / "my.toml")
    # Of what is not TOML, --set takes the text.
    with pytest.raises(ConfigError, match=r"model\.hidden"):
        load_experiment("sinusoid-maml", [f"model.hidden={text[4:]}"])


def test_inits_that_are_nested_too_deep_are_refused(write) -> None:
    init = {"name": "learned"}
    for _ in range(300):
        init = {"name": "attenuated", "around": init}
    with pytest.raises(ConfigError, match="an init around another more than 10 times"):
        load_experiment(write({**BASE, "init": init}))


def test_invalid_toml_says_where(write) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml is not valid TOML: .*line 2"):
        load_experiment(write("seed = 1\n[tasks\n"))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", bytes(range(128, 256))])
def test_a_file_that_is_not_text_is_refused(write, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml: it is not a text file\."):
        load_experiment(write(content))


def test_text_beyond_ascii_is_read_as_utf8(write) -> None:
    assert load_experiment(write("# Schrödinger\n" + tomli_w.dumps(BASE))).seed == 0


def test_a_preset_fills_in_what_the_rule_leaves_open() -> None:
    rule = {"name": "alfa", "beta_form": "decay"}
    options = parse_experiment({**BASE, "preset": "paper", "rule": rule}).rule.options
    assert options["beta_form"] == "decay"
    assert options["state_gradient"] == "full"
    assert options["generator_start"] == "random"
    assert options["generator_depth"] == 3


def test_a_preset_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="preset is 'paper', but only the rule 'alfa' has"):
        parse_experiment({**BASE, "preset": "paper", "rule": {"name": "sgd"}})
    without = {key: value for key, value in BASE.items() if key != "rule"}
    with pytest.raises(ConfigError, match="preset is 'paper', but only the rule 'alfa' has"):
        parse_experiment({**without, "preset": "paper"})


def test_a_preset_beside_a_rule_that_is_no_table_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^the experiment: rule is 'alfa', but must be a table"):
        parse_experiment({**BASE, "rule": "alfa"}, overrides=["preset=paper"])


def test_a_preset_set_later_replaces_the_pooling_that_a_run_spells_out(write) -> None:
    content = {**BASE, "model": {"name": "resnet12"}, "rule": {"name": "alfa"}}
    path = write(to_dict(parse_experiment({**content, "preset": "published-code"})))
    assert load_experiment(path).model.options["pooling"] == "three"
    for preset in ("paper", "default"):
        assert load_experiment(path, [f"preset={preset}"]).model.options["pooling"] == "four"


def test_a_preset_set_later_replaces_what_a_run_spells_out(write) -> None:
    path = write(to_dict(load_experiment("sinusoid-alfa")))
    options = load_experiment(path, ["preset=paper"]).rule.options
    assert options["beta_form"] == "factor"
    assert options["generator_start"] == "random"
    back = load_experiment(write(to_dict(load_experiment(path, ["preset=paper"]))))
    assert back.rule.options == options


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
    around = {"name": "fixed", "adapt": ["linear2.*"]}
    init = _learner({"init": {"name": "attenuated", "around": around}}).init
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


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"rule": {"name": "alfa"}, "preset": "paper"},
        {"rule": {"name": "alfa", "alpha": {"source": "constant", "value": 0.1}}},
        {"rule": {"name": "learned", "beta": {"source": "learned", "start": 0.5}}},
        {"init": {"name": "attenuated", "around": {"name": "fixed", "adapt": ["*.bias"]}}},
        {"outer": {"max_gradient_norm": 3.0}, "seed": 5},
    ],
)
def test_an_experiment_written_and_read_again_is_the_same(write, change: dict[str, Any]) -> None:
    experiment = parse_experiment({**BASE, **change})
    again = load_experiment(write(to_dict(experiment)))
    assert again == experiment
    assert again.fingerprint() == experiment.fingerprint()


@pytest.mark.parametrize("override", ["outer.num_iterations=7", "test.num_tasks=3"])
def test_the_fingerprint_ignores_how_long_one_trains_and_tests(override: str) -> None:
    fingerprint = load_experiment("sinusoid-alfa").fingerprint()
    assert load_experiment("sinusoid-alfa", [override]).fingerprint() == fingerprint


@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [("sinusoid-alfa", "acfb295e5edc32aa"), ("sinusoid-maml", "9f1c62c87aac7667")],
)
def test_the_fingerprints_of_older_runs_still_hold(name: str, fingerprint: str) -> None:
    """As they were before there was a choice of batch norm."""
    assert load_experiment(name).fingerprint() == fingerprint


@pytest.mark.parametrize(
    "override",
    [
        "outer.learning_rate=0.5",
        "outer.num_tasks=5",
        "outer.validate_every=7",
        "outer.max_gradient_norm=1",
        "seed=1",
        "inner.num_steps=4",
        "inner.order=first",
        "inner.batch_norm=inductive",
        "tasks.num_support=5",
        "model.hidden=[40]",
        "init.name=fixed",
        "rule.generator_depth=2",
        "preset=paper",
    ],
)
def test_the_fingerprint_changes_with_what_training_goes_through(override: str) -> None:
    fingerprint = load_experiment("sinusoid-alfa").fingerprint()
    assert load_experiment("sinusoid-alfa", [override]).fingerprint() != fingerprint


def test_an_experiment_cannot_be_changed() -> None:
    experiment = load_experiment("sinusoid-alfa")
    with pytest.raises(ValueError, match="frozen"):
        experiment.seed = 3


_PLUGIN = """
from alfa import register_rule
from alfa.types import PositiveFloat, Rates
from alfa.rules import Rule


@register_rule("{name}")
class Halving(Rule):
    def __init__(self, layers, *, first: PositiveFloat = 0.1, num_steps: int = 1):
        super().__init__(layers)
        self.first, self.num_steps = first, num_steps

    def rates(self, step, params, grads, memory=()):
        one = params.flat.new_ones(())
        return Rates(one * self.first / 2**step, one)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a plugin where it can be imported, and forget it after the test."""
    known = set(sys.modules)
    monkeypatch.setattr(RULES, "_parts", dict(RULES._parts))
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    yield make
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]


def test_a_rule_of_a_plugin_is_used_by_name(write, plugin) -> None:
    plugin("my_rules", _PLUGIN.format(name="halving"))
    rule = {"name": "halving", "first": 0.4}
    path = write({**BASE, "plugins": ["my_rules"], "rule": rule, "inner": {"num_steps": 3}})
    experiment = load_experiment(path)
    learner = build_learner(experiment, build_tasks(experiment))
    assert learner.rule.num_steps == 3
    adapted = learner.adapt(*[build_tasks(experiment).episode(0, num_tasks=2).support_x] * 2)
    assert [float(r.alpha.detach()) for r in adapted.rates] == pytest.approx([0.4, 0.2, 0.1])


def test_options_of_a_plugins_rule_are_checked(write, plugin) -> None:
    plugin("my_checked_rules", _PLUGIN.format(name="checked"))
    rule = {"name": "checked", "first": -1, "secnd": 2}
    path = write({**BASE, "plugins": ["my_checked_rules"], "rule": rule})
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert "rule.first is -1, but must be greater than 0." in str(caught.value)
    assert "rule.secnd is not a known key; known: first." in str(caught.value)


def test_a_plugin_that_is_not_there_is_named(write) -> None:
    path = write({**BASE, "plugins": ["no_such_plugin"]})
    with pytest.raises(ConfigError, match=r"my\.toml: plugins has 'no_such_plugin', which can"):
        load_experiment(path)


def test_a_plugin_whose_own_import_fails_is_named(write, plugin) -> None:
    plugin("needs_more", "import no_such_module")
    path = write({**BASE, "plugins": ["needs_more"]})
    with pytest.raises(ConfigError, match=r"'needs_more'.* cannot be imported: .*no_such_module"):
        load_experiment(path)


@pytest.mark.parametrize("text", ["def", "1 / 0"])
def test_a_plugin_with_an_error_in_it_is_named(write, plugin, text: str) -> None:
    plugin("faulty", text)
    path = write({**BASE, "plugins": ["faulty"]})
    with pytest.raises(ConfigError, match="'faulty'"):
        load_experiment(path)


@pytest.mark.parametrize("name", ["", ".relative"])
def test_a_plugin_name_that_is_none_is_refused(write, name: str) -> None:
    with pytest.raises(ConfigError, match="plugin"):
        load_experiment(write({**BASE, "plugins": [name]}))


def test_a_plugin_that_takes_a_known_name_is_refused(write, plugin) -> None:
    plugin("clashing", _PLUGIN.format(name="sgd"))
    path = write({**BASE, "plugins": ["clashing"]})
    with pytest.raises(ConfigError, match="the rule 'sgd' is already taken by SGD"):
        load_experiment(path)


def test_none_is_a_word_where_it_is_one_of_those_allowed() -> None:
    words = ["rule.state_gradient=none"]
    assert load_experiment("sinusoid-alfa", words).rule.options["state_gradient"] == "none"
    with pytest.raises(ConfigError, match=r"inner.order is 'none', but must be 'second' or 'first"):
        load_experiment("sinusoid-alfa", ["inner.order=none"])
    # Elsewhere it is the absence of a value.
    changed = load_experiment(
        "sinusoid-alfa", ["inner.num_test_steps=7", "inner.num_test_steps=none"]
    )
    assert changed.inner.num_test_steps is None


@pytest.mark.parametrize(
    "key",
    ["seed", "outer.num_tasks", "outer.learning_rate", "tasks.num_support", "inner.num_steps"],
)
def test_a_truth_value_is_no_number(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} is true, but must be a number\."):
        load_experiment("sinusoid-alfa", [f"{key}=true"])


def test_a_truth_value_is_one_where_it_is_asked_for() -> None:
    experiment = load_experiment("strokes-alfa", ["tasks.augment=true"])
    assert experiment.tasks.options["augment"] is True
