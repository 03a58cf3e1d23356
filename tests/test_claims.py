"""Tests of the queue for the paper's claims: resuming, verdicts, and tables."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from alfa.config import parse_experiment, to_dict

ROOT = Path(__file__).parents[1]


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return the script with an empty folder for runs and results."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("claims")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "claims.json")
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    return module


@pytest.fixture
def page(claims: ModuleType) -> ModuleType:
    """Return the module with the tables."""
    return importlib.import_module("_claims_page")


def test_an_interrupted_test_is_repeated_before_training_continues(claims) -> None:
    entry = claims.QUEUE["maml"]
    lengths = [0]
    while lengths[-1] < entry.num_iterations:
        lengths.append(claims.next_goal(entry, 15_000, lengths[-1], tested=lengths))
    assert lengths == list(range(0, 15_001, 500))
    for done in (2_000, 6_000):
        assert claims.next_goal(entry, 15_000, done, tested=[]) == done
        assert claims.next_goal(entry, 15_000, done, tested=[done]) == done + 500
    # In the middle of an epoch, and beyond the requested iterations.
    assert claims.next_goal(entry, 15_000, 2_499, tested=[]) == 2_500
    assert claims.next_goal(entry, 2_000, 7_000, tested=[]) == 7_000


def _evaluated(accuracy: float, count: int = 40) -> SimpleNamespace:
    per_task = tuple(accuracy + 0.01 * number for number in range(count))
    content: dict[str, Any] = {
        "loss": 1.0,
        "interval": 0.1,
        "accuracy": sum(per_task) / count,
        "accuracy_interval": 0.1,
        "num_tasks": count,
        "num_steps": 5,
        "split": "test",
        "seed": 0,
        "batch_norm": "transductive",
    }
    return SimpleNamespace(**content, per_task=per_task, as_dict=lambda: content)


@pytest.mark.parametrize(
    ("length", "is_transferred"), [(2_000, False), (6_000, True), (15_000, True)]
)
def test_methods_are_tested_on_other_datasets_at_the_lengths_to_compare(
    claims, monkeypatch, length: int, is_transferred: bool
) -> None:
    result = {
        "num_iterations": length,
        "num_meta_parameters": 1,
        "test": {"num_tasks": 600, "accuracy": _evaluated(0.5).accuracy},
        "config": {"outer": {"num_iterations": length}},
        "best_iteration": length,
        "val_accuracy": 0.5,
        "seconds": 1.0,
    }
    other = SimpleNamespace(signature=lambda: SimpleNamespace(data="other"))
    run = SimpleNamespace(
        files=SimpleNamespace(exists=True),
        path=Path("run"),
        result=result,
        experiment=SimpleNamespace(),
        signature=SimpleNamespace(data="own"),
        dataset_overrides=lambda dataset: dataset,
        tasks=lambda overrides: other,
    )
    monkeypatch.setattr(claims, "Run", lambda path: run)
    monkeypatch.setattr(claims, "progress", lambda path: length)
    monkeypatch.setattr(claims.Computing, "set_up", lambda *_, **__: None)
    evaluated: list[Any] = []

    def evaluate_run(run: Any, overrides: Any = None, num_tasks: int = 0) -> Any:
        evaluated.append(overrides)
        return _evaluated(0.5)

    monkeypatch.setattr(claims, "evaluate_run", evaluate_run)
    # The second call finds all results.
    for _ in range(2):
        claims.record("maml")
    assert evaluated == [None, *(claims.OTHER_DATASETS if is_transferred else ())]
    found = json.loads(claims.RESULTS.read_text())["maml"]
    assert list(found) == [str(length)]
    others = found[str(length)].get("other_datasets", {})
    assert set(others) == set(evaluated) - {None}
    # Each result states its images.
    assert found[str(length)]["data"] == "own"
    assert all(result["data"] == "other" for result in others.values())


def _kept(accuracy: float, bend: float = 0.0, data: str = "") -> dict[str, Any]:
    found = _evaluated(accuracy)
    per_task = [a + bend * (-1) ** i for i, a in enumerate(found.per_task)]
    test = found.as_dict()
    return {"test": test, "per_task": per_task, "data": data, "val_accuracy": accuracy - 0.05}


def test_verdicts(page) -> None:
    better, worse = _kept(0.6), _kept(0.5, bend=1e-3)
    assert page.verdict(better, worse) == ("+10.00 +- 0.03", "confirmed")
    opposite = "not confirmed: the opposite holds"
    assert page.verdict(worse, better) == ("-10.00 +- 0.03", opposite)
    # The verdict mentions the paper if its difference is negative.
    assert page.verdict(worse, better, 0.5)[1] == opposite
    assert page.verdict(worse, better, -0.5)[1] == f"{opposite}, as in the paper"
    assert page.verdict(better, worse, -0.5)[1] == "confirmed, unlike in the paper"
    assert page.verdict(_kept(0.51), _kept(0.5, bend=0.1))[1] == "not decided at this length"


def test_differences_within_the_variation_of_training_are_not_decided(page) -> None:
    better, worse = _kept(0.52), _kept(0.5, bend=1e-3)
    text = "not decided: {} on these tasks, but within the variation of repeated training"
    assert page.verdict(better, worse)[1] == "confirmed"
    for in_paper in (None, -1.0):
        assert page.verdict(better, worse, in_paper, margin=3.0)[1] == text.format("higher")
        assert page.verdict(worse, better, in_paper, margin=3.0)[1] == text.format("lower")


def test_results_on_different_images_are_not_compared(page) -> None:
    assert page.verdict(_kept(0.6, data="a"), _kept(0.5, 1e-3, data="a"))[1] == "confirmed"
    # Older results do not state their images.
    assert page.verdict(_kept(0.6, data="a"), _kept(0.5, 1e-3))[1] == "confirmed"
    with pytest.raises(ValueError, match="different images are not comparable: a and b"):
        page.verdict(_kept(0.6, data="a"), _kept(0.5, data="b"))


def test_ensembles_are_compared_as_independent(page) -> None:
    def found(accuracy: float, interval: float) -> dict[str, Any]:
        return {"ensemble": {"accuracy": accuracy, "accuracy_interval": interval}}

    assert page.ensemble_difference(found(0.5, 0.03), found(0.4, 0.04)) == "+10.00 +- 5.00"
    assert page.ensemble_difference(found(0.5, 0.03), {}) == "-"


def test_a_run_with_other_settings_is_not_resumed(claims, monkeypatch) -> None:
    claims.RUNS.mkdir()
    started: list[str] = []

    def start(words: list[str], **_: Any) -> None:
        started.append(words[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(claims.subprocess, "run", start)
    with pytest.raises(KeyboardInterrupt):
        claims.train("depth-2", 500)
    assert len(started) == 1
    (claims.RUNS / "depth-2").mkdir()
    config = (claims.RUNS / "depth-2.toml").read_text()
    (claims.RUNS / "depth-2" / "config.toml").write_text(config)
    with pytest.raises(KeyboardInterrupt):
        claims.train("depth-2", 500)
    assert len(started) == 2
    other = config.replace("generator_depth = 2", "generator_depth = 3")
    assert other != config
    (claims.RUNS / "depth-2" / "config.toml").write_text(other)
    with pytest.raises(SystemExit, match="depth-2 has other settings than the queue: rule"):
        claims.train("depth-2", 500)
    assert len(started) == 2


def test_a_kill_during_keep_leaves_a_complete_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    common = importlib.import_module("_common")
    run, kept, again = tmp_path / "runs" / "a", tmp_path / "kept" / "a", tmp_path / "again" / "a"

    def write(text: str) -> None:
        run.mkdir(parents=True, exist_ok=True)
        (run / "metrics.jsonl").write_text(text)
        (run / "result-1.json").write_text("result of an epoch")

    write("first")
    common.keep(run, kept)
    write("second")
    rename = Path.rename
    for num_renamed in range(2):
        left = iter(range(num_renamed))

        def stop(self: Path, target: Path, left: Iterator[int] = left) -> Path:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", stop)
        with pytest.raises(KeyboardInterrupt):
            common.keep(run, kept)
        monkeypatch.setattr(Path, "rename", rename)
        common.restore(again, kept)
        assert (again / "metrics.jsonl").read_text() == "first"
        shutil.rmtree(again)
    common.keep(run, kept)
    common.restore(again, kept)
    assert (again / "metrics.jsonl").read_text() == "second"
    assert [path.name for path in kept.parent.iterdir()] == ["a"]
    assert [path.name for path in again.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("random", 39.87), ("alfa+maml+l2f", 76.60), ("1-shot-maml", 56.80), ("fc100-maml", 49.38)],
)
def test_the_published_accuracy_of_an_entry(page, name: str, expected: float) -> None:
    assert page.published(name) == expected


def test_published_differences_on_other_datasets(page) -> None:
    assert page.published_transfer("alfa+maml", "maml", "cub") == pytest.approx(58.35 - 52.70)
    assert page.published_transfer("maml+l2f", "maml", "omniglot") == pytest.approx(94.96 - 85.68)
    assert page.published_transfer("alfa+random", "random", "cub") is None
    assert page.published_transfer("alfa+maml", "maml", "vgg-flower") is None


def test_the_table_of_defaults_contains_every_change(page) -> None:
    assert list(page.CHANGES) == list(page.VARIANTS)
    assert page.default_table({}) == []

    short = str(page.SHORT)
    results = {"alfa+maml": {short: _kept(0.5)}, "depth-2": {short: _kept(0.6)}}
    results["beta-factor"] = {short: _kept(0.4)}
    results |= {"seed-1": {short: _kept(0.3)}, "seed-1-state-gradient-none": {short: _kept(0.2)}}
    # A default without variants has no row.
    results["maml"] = {short: _kept(0.35)}
    lines = [line for line in page.default_table(results) if "`" in line]
    assert [line.split("|")[2].strip(" `") for line in lines] == [
        *("alfa+maml", "depth-2", "beta-factor", "seed-1", "seed-1-state-gradient-none")
    ]
    assert [line.split("|")[3].strip() for line in lines] == ["0", "0", "0", "1", "1"]
    assert [line.split("|")[4].strip() for line in lines] == [
        *("45.00", "55.00", "35.00", "25.00", "15.00")
    ]
    assert [line.split("|")[7].strip() for line in lines] == [
        *("", "the default is worse", "the default is better", "", "the default is better")
    ]


def test_methods_are_compared_with_longer_training_of_maml(page) -> None:
    def on_all(accuracy: float) -> dict[str, Any]:
        others = {x: _kept(accuracy - 0.1 * (x == "cub"), 1e-3) for x in page.OTHER_DATASETS}
        return {**_kept(accuracy, data="own"), "other_datasets": others}

    results = {"alfa+random": {"6000": on_all(0.6)}, "maml": {"6000": on_all(0.1)}}
    assert page.longer_maml_table(results) == []
    longer = on_all(0.5)
    longer["other_datasets"]["cub"] = _kept(0.7)
    results["maml"]["15000"] = longer
    title, _, head, _, row, _ = page.longer_maml_table(results)
    assert title == "### After 6,000 iterations, compared with MAML after 15,000"
    names, figures = ([cell.strip() for cell in line.split("|")[2:-1]] for line in (head, row))
    assert names == ["cifar-fs", *page.OTHER_DATASETS]
    found = dict(zip(names, (figure.split()[0] for figure in figures), strict=True))
    assert found["cifar-fs"] == found["omniglot"] == "+10.00"
    assert found["cub"] == "-20.00"
    with pytest.raises(ValueError, match="different images are not comparable"):
        page.longer_maml_table({**results, "maml": {"15000": {**longer, "data": "other"}}})


def test_missing_runs_are_listed(claims, monkeypatch) -> None:
    done = {name: {str(entry.num_iterations): {}} for name, entry in claims.QUEUE.items()}
    assert claims.missing_runs(done) == []
    del done["seed-1"], done["maml"]
    monkeypatch.setattr(claims, "reached", lambda name: 6_500 if name == "maml" else 0)
    lines = ["Incomplete runs: `maml` (6,500 of 15,000 iterations).", ""]
    lines += ["Runs of the queue that were not started: `seed-1`.", ""]
    assert claims.missing_runs(done) == lines


def test_every_run_is_listed_with_its_command_and_full_length(page) -> None:
    trained = {**_kept(0.5), "seconds": 90.0}
    results = {"maml": {"2000": trained, "6000": {**trained, "seconds": 600.0}}}
    results["alfa+maml"] = {"15000": {**trained, "seconds": 3600.0}}
    results |= {"seed-1": {"2000": trained}, "random": {"500": {**trained, "seconds": 0.0}}}
    assert page.run_table({}) == []
    rows = [line.split(" | ") for line in page.run_table(results) if "claims.py " in line]
    names = ["random", "maml", "alfa+maml", "seed-1"]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in names]
    assert [row[1].split("claims.py ")[1].strip("`") for row in rows] == [
        *("run random", "until 6000 maml", "run alfa+maml", "run seed-1")
    ]
    assert [row[2:5] for row in rows] == [
        *(["0", "-", "0"], ["0", "6,000", "10"], ["0", "15,000", "60"], ["1", "2,000", "2"])
    ]


def test_a_variant_changes_only_its_option(page) -> None:
    for name, base in [*((x, "alfa+maml") for x in page.VARIANTS), ("maml-outer-rate", "maml")]:
        content, default = (
            to_dict(parse_experiment(page.QUEUE[x].content(1))) for x in (name, base)
        )
        assert content.keys() == default.keys()
        found = {
            (part, key)
            for part in content
            if content[part] != default[part]
            for key in {**content[part], **default[part]}
            if content[part].get(key) != default[part].get(key)
        }
        changes = page.VARIANTS[name.removeprefix("maml-")]
        assert found == {(part, k) for part, new in changes.items() for k in new if k != "name"}


def test_repeated_variants_have_a_second_seed(page) -> None:
    assert set(page.REPEATED) <= set(page.VARIANTS)
    seeds = {name: entry.content(1)["seed"] for name, entry in page.QUEUE.items()}
    assert [name for name, seed in seeds.items() if seed] == [
        "seed-1",
        *(f"seed-1-{name}" for name in page.REPEATED),
    ]
