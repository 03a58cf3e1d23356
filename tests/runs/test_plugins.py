"""A run folder stores the sources of its plugins, and warns if they change."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import warnings
from pathlib import Path

import pytest

from alfa.config import parse_experiment
from alfa.errors import AlfaWarning, CheckpointError
from alfa.runs import Run
from alfa.training import train_run

SOURCE = """
from alfa import register_rule
from alfa.rules import SGD

@register_rule("{name}")
class Mine(SGD):
    pass
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Return a function that writes a module and forgets it after the test."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written = []

    def write(name: str, source: str) -> Path:
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(source)
        written.append(name)
        importlib.invalidate_caches()
        return path

    yield write
    for name in [
        m for m in sys.modules if m.partition(".")[0] in {w.split(".")[0] for w in written}
    ]:
        del sys.modules[name]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def train(path: Path, plugins: list[str], rule: str) -> Run:
    content = {
        "plugins": plugins,
        "tasks": {"name": "sinusoid"},
        "model": {"name": "mlp", "hidden": [4]},
        "rule": {"name": rule},
        "outer": {"num_iterations": 1, "num_tasks": 1, "validate_every": 1, "num_val_tasks": 1},
        "test": {"num_tasks": 1},
    }
    train_run(Run.new(path, parse_experiment(content)))
    return Run(path)


def opened_without_warning(path: Path) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Run.open(path)


def test_the_source_and_its_hash_are_stored(plugin, tmp_path) -> None:
    source = plugin("stored_rules", SOURCE.format(name="stored"))
    run = train(tmp_path / "run", ["stored_rules"], "stored")
    stored = run.path / "plugins" / "stored_rules.py"
    assert stored.read_text() == source.read_text()
    expected = {"stored_rules": {"stored_rules.py": digest(source)}}
    assert json.loads((run.path / "plugins.json").read_text()) == expected
    assert opened_without_warning(run.path).plugin_hashes == expected
    assert run.files.plugins / "stored_rules.py" == stored


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_changed_source_warns(plugin, tmp_path, is_loaded: bool) -> None:
    source = plugin("changed_rules", SOURCE.format(name="changed"))
    run = train(tmp_path / "run", ["changed_rules"], "changed")
    before = digest(source)
    if not is_loaded:
        del sys.modules["changed_rules"]
    # Opening the run must not execute the source.
    source.write_text("raise RuntimeError('executed')")
    hashes = rf"hash was {before[:12]} and is {digest(source)[:12]}"
    with pytest.warns(AlfaWarning, match=rf"the plugin 'changed_rules' has changed.*{hashes}"):
        Run.open(run.path)
    source.write_text(SOURCE.format(name="changed"))
    opened_without_warning(run.path)


def test_all_files_of_a_package_count(plugin, tmp_path) -> None:
    plugin("my_package.__init__", "from my_package import rules\n")
    plugin("my_package.rules", SOURCE.format(name="packaged"))
    helper = plugin("my_package.deep.helper", "FACTOR = 1\n")
    run = train(tmp_path / "run", ["my_package"], "packaged")
    names = {"__init__.py", "rules.py", "deep/helper.py"}
    assert set(run.plugin_hashes["my_package"]) == {f"my_package/{name}" for name in names}
    for name, expected in run.plugin_hashes["my_package"].items():
        assert digest(run.files.plugins / name) == expected
    opened_without_warning(run.path)
    helper.write_text("FACTOR = 2\n")
    with pytest.warns(AlfaWarning, match="the plugin 'my_package' has changed"):
        Run.open(run.path)


def test_a_module_of_a_package_is_stored_alone(plugin, tmp_path) -> None:
    plugin("other_package.__init__", "")
    plugin("other_package.unused", "")
    source = plugin("other_package.rules", SOURCE.format(name="alone"))
    run = train(tmp_path / "run", ["other_package.rules"], "alone")
    expected = {"other_package.rules": {"other_package/rules.py": digest(source)}}
    assert run.plugin_hashes == expected


def test_a_resumed_run_keeps_the_first_source(plugin, tmp_path) -> None:
    source = plugin("resumed_rules", SOURCE.format(name="resumed"))
    run = train(tmp_path / "run", ["resumed_rules"], "resumed")
    before = run.plugin_hashes
    source.write_text(SOURCE.format(name="resumed") + "# changed\n")
    experiment = run.experiment
    with pytest.warns(AlfaWarning, match="has changed"):
        train_run(Run.new(run.path, experiment), resume=True)
    assert Run(run.path).plugin_hashes == before
    with pytest.warns(AlfaWarning, match="has changed"):
        Run.open(run.path)


def test_a_run_that_was_killed_before_its_first_checkpoint_is_stored_once(plugin, tmp_path) -> None:
    plugin("killed_rules", SOURCE.format(name="killed"))
    run = train(tmp_path / "run", ["killed_rules"], "killed")
    leftover = run.files.plugins / ".killed_rules.py.abcdefgh"
    leftover.write_text("")
    for path in (run.path / "checkpoints").iterdir():
        path.unlink()
    train_run(Run.new(run.path, run.experiment), resume=True)
    assert [path.name for path in run.files.plugins.iterdir()] == ["killed_rules.py"]


def test_a_run_without_plugins_stores_none(tmp_path) -> None:
    run = train(tmp_path / "run", [], "sgd")
    assert run.plugin_hashes == {}
    assert not (run.path / "plugins.json").exists()
    assert not (run.path / "plugins").exists()


def test_a_missing_module_does_not_warn(plugin, tmp_path) -> None:
    source = plugin("missing_rules", SOURCE.format(name="missing"))
    run = train(tmp_path / "run", ["missing_rules"], "missing")
    del sys.modules["missing_rules"]
    source.unlink()
    opened_without_warning(run.path)


def test_a_damaged_listing_is_named(plugin, tmp_path) -> None:
    plugin("damaged_rules", SOURCE.format(name="damaged"))
    run = train(tmp_path / "run", ["damaged_rules"], "damaged")
    run.files.plugin_hashes.write_text('{"damaged_rules": 3}')
    with pytest.raises(CheckpointError, match=r"plugins\.json is damaged; restore it"):
        Run.open(run.path)
