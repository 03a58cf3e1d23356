"""Experiments from files, by name, and with the user's parts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from alfa.build import build_learner, build_tasks
from alfa.config import compose, load_experiment
from alfa.errors import ConfigError
from alfa.rules import RULES

BASE: dict[str, Any] = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [8]}}


def test_a_file_is_read_and_what_it_leaves_out_is_filled_in(write) -> None:
    experiment = load_experiment(write({**BASE, "seed": 3, "inner": {"num_steps": 2}}))
    assert experiment.seed == 3
    assert experiment.inner.num_steps == 2
    assert experiment.optimizer.options["learning_rate"] == 0.001
    assert experiment.init.name == "learned"
    assert experiment.rule.options == {"learning_rate": 0.01, "weight_decay": 0.0}
    assert experiment.tasks.options == {"num_support": 10, "num_query": 100}


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
    # --set takes a value that is not TOML as text.
    with pytest.raises(ConfigError, match=r"model\.hidden"):
        compose("sinusoid", method="maml", overrides=[f"model.hidden={text[4:]}"])


def test_invalid_toml_says_where(write) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml is not valid TOML: .*line 2"):
        load_experiment(write("seed = 1\n[tasks\n"))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", bytes(range(128, 256))])
def test_a_file_that_is_not_text_is_refused(write, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml: it is not a text file\."):
        load_experiment(write(content))


def test_text_beyond_ascii_is_read_as_utf8(write) -> None:
    assert load_experiment(write("# Schrödinger\n" + tomli_w.dumps(BASE))).seed == 0


_PLUGIN = """
from alfa import register_rule
from alfa.types import PositiveFloat, Rates
from alfa.rules import Rule


@register_rule("{name}")
class Halving(Rule):
    def __init__(self, layers, *, first: PositiveFloat = 0.1, num_steps: int = 1):
        super().__init__(layers)
        self.first, self.num_steps = first, num_steps

    def rates(self, step, params, grads, state=()):
        one = params.flat.new_ones(())
        return Rates(one * self.first / 2**step, one)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write an importable plugin, and unload it after the test."""
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
    plugin("my_rules", _PLUGIN.format(name="my-halving"))
    rule = {"name": "my-halving", "first": 0.4}
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
    assert "rule.secnd is not a known key; known: name, first." in str(caught.value)


def test_a_plugin_that_is_not_there_is_named(write) -> None:
    path = write({**BASE, "plugins": ["no_such_plugin"]})
    with pytest.raises(ConfigError, match=r"my\.toml: plugins contains 'no_such_plugin', which"):
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
