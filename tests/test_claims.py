"""The queue that measures the paper's claims resumes and reports its results."""

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
    """The command, in a folder without results."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("claims")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "claims.json")
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    return module


@pytest.fixture
def page(claims: ModuleType) -> ModuleType:
    """The tables."""
    return importlib.import_module("_claims_page")


def test_an_interrupted_evaluation_is_repeated(claims) -> None:
    entry = claims.QUEUE["maml"]
    lengths = [0]
    while lengths[-1] < entry.num_iterations:
        lengths.append(claims.next_goal(entry, 15_000, lengths[-1], tested=lengths))
    assert lengths == list(range(0, 15_001, 500))
    for done in (2_000, 6_000):
        assert claims.next_goal(entry, 15_000, done, tested=[]) == done
        assert claims.next_goal(entry, 15_000, done, tested=[done]) == done + 500
    # In the middle of an epoch, and beyond the requested length.
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
    ("length", "is_elsewhere"), [(2_000, False), (6_000, True), (15_000, True)]
)
def test_compared_lengths_are_also_tested_on_other_datasets(
    claims, monkeypatch, length: int, is_elsewhere: bool
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
    there = SimpleNamespace(signature=lambda: SimpleNamespace(data="there"))
    run = SimpleNamespace(
        files=SimpleNamespace(exists=True),
        path=Path("run"),
        result=result,
        experiment=SimpleNamespace(),
        signature=SimpleNamespace(data="here"),
        dataset_overrides=lambda dataset: dataset,
        tasks=lambda overrides: there,
    )
    monkeypatch.setattr(claims, "Run", lambda path: run)
    monkeypatch.setattr(claims, "progress", lambda path: length)
    monkeypatch.setattr(claims, "set_up", lambda *_, **__: None)
    evaluated: list[Any] = []

    def evaluate_run(run: Any, overrides: Any = None, num_tasks: int = 0) -> Any:
        evaluated.append(overrides)
        return _evaluated(0.5)

    monkeypatch.setattr(claims, "evaluate_run", evaluate_run)
    # The second call reuses the results.
    for _ in range(2):
        claims.note("maml")
    assert evaluated == [None, *(claims.ELSEWHERE if is_elsewhere else ())]
    found = json.loads(claims.RESULTS.read_text())["maml"]
    assert list(found) == [str(length)]
    elsewhere = found[str(length)].get("elsewhere", {})
    assert set(elsewhere) == set(evaluated) - {None}
    # Only results on the same images are compared.
    assert found[str(length)]["data"] == "here"
    assert all(figures["data"] == "there" for figures in elsewhere.values())


def _kept(accuracy: float, bend: float = 0.0, data: str = "") -> dict[str, Any]:
    found = _evaluated(accuracy)
    per_task = [a + bend * (-1) ** i for i, a in enumerate(found.per_task)]
    test = found.as_dict()
    return {"test": test, "per_task": per_task, "data": data, "val_accuracy": accuracy - 0.05}


def test_the_verdict_on_a_claim(page) -> None:
    better, worse = _kept(0.6), _kept(0.5, bend=1e-3)
    assert page.verdict(better, worse) == ("+10.00 +- 0.03", "confirmed")
    told = "not confirmed: it is the other way round"
    assert page.verdict(worse, better) == ("-10.00 +- 0.03", told)
    # The verdict names agreement and disagreement with the paper.
    assert page.verdict(worse, better, 0.5)[1] == told
    assert page.verdict(worse, better, -0.5)[1] == f"{told}, as in the paper"
    assert page.verdict(better, worse, -0.5)[1] == "confirmed, unlike in the paper"
    assert page.verdict(_kept(0.51), _kept(0.5, bend=0.1))[1] == "not decided at this length"


def test_differences_within_the_training_variance_decide_nothing(page) -> None:
    better, worse = _kept(0.52), _kept(0.5, bend=1e-3)
    told = "not decided: {} on these tasks, but another training may change as much"
    assert page.verdict(better, worse)[1] == "confirmed"
    for papers in (None, -1.0):
        assert page.verdict(better, worse, papers, margin=3.0)[1] == told.format("higher")
        assert page.verdict(worse, better, papers, margin=3.0)[1] == told.format("lower")


def test_results_on_different_images_are_not_compared(page) -> None:
    assert page.verdict(_kept(0.6, data="a"), _kept(0.5, 1e-3, data="a"))[1] == "confirmed"
    # Older results do not record their images.
    assert page.verdict(_kept(0.6, data="a"), _kept(0.5, 1e-3))[1] == "confirmed"
    with pytest.raises(ValueError, match="other images cannot be compared: a and b"):
        page.verdict(_kept(0.6, data="a"), _kept(0.5, data="b"))


def test_ensembles_are_compared_by_their_intervals(page) -> None:
    def found(accuracy: float, interval: float) -> dict[str, Any]:
        return {"ensemble": {"accuracy": accuracy, "accuracy_interval": interval}}

    assert page.of_ensembles(found(0.5, 0.03), found(0.4, 0.04)) == "+10.00 +- 5.00"
    assert page.of_ensembles(found(0.5, 0.03), {}) == "-"


def test_a_run_with_other_settings_is_not_resumed(claims, monkeypatch) -> None:
    claims.RUNS.mkdir()
    begun: list[str] = []

    def start(words: list[str], **_: Any) -> None:
        begun.append(words[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(claims.subprocess, "run", start)
    with pytest.raises(KeyboardInterrupt):
        claims.train("depth-2", 500)
    assert len(begun) == 1
    (claims.RUNS / "depth-2").mkdir()
    config = (claims.RUNS / "depth-2.toml").read_text()
    (claims.RUNS / "depth-2" / "config.toml").write_text(config)
    with pytest.raises(KeyboardInterrupt):
        claims.train("depth-2", 500)
    assert len(begun) == 2
    other = config.replace("generator_depth = 2", "generator_depth = 3")
    assert other != config
    (claims.RUNS / "depth-2" / "config.toml").write_text(other)
    with pytest.raises(SystemExit, match="depth-2 was begun with other settings than the queue"):
        claims.train("depth-2", 500)
    assert len(begun) == 2


def test_a_copy_that_is_interrupted_leaves_a_complete_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    common = importlib.import_module("_common")
    run, kept, again = tmp_path / "runs" / "a", tmp_path / "kept" / "a", tmp_path / "again" / "a"

    def write(text: str) -> None:
        run.mkdir(parents=True, exist_ok=True)
        (run / "metrics.jsonl").write_text(text)
        (run / "result-1.json").write_text("of an epoch")

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
def test_the_published_result_of_an_entry(page, name: str, expected: float) -> None:
    assert page.published(name) == expected


def test_the_published_difference_on_another_dataset(page) -> None:
    assert page.published_there("alfa+maml", "maml", "cub") == pytest.approx(58.35 - 52.70)
    assert page.published_there("maml+l2f", "maml", "omniglot") == pytest.approx(94.96 - 85.68)
    assert page.published_there("alfa+random", "random", "cub") is None
    assert page.published_there("alfa+maml", "maml", "vgg-flower") is None


def test_every_change_of_the_defaults_is_reported(page) -> None:
    assert list(page.CHANGES) == list(page.VARIANTS)
    assert page.our_defaults({}) == []

    short = str(page.SHORT)
    results = {"alfa+maml": {short: _kept(0.5)}, "depth-2": {short: _kept(0.6)}}
    results["beta-factor"] = {short: _kept(0.4)}
    results |= {"seed-1": {short: _kept(0.3)}, "seed-1-state-gradient-none": {short: _kept(0.2)}}
    # A default without a changed run has no row.
    results["maml"] = {short: _kept(0.35)}
    lines = [line for line in page.our_defaults(results) if "`" in line]
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


def test_rows_are_compared_with_a_longer_training_of_maml(page) -> None:
    def everywhere(accuracy: float) -> dict[str, Any]:
        elsewhere = {x: _kept(accuracy - 0.1 * (x == "cub"), 1e-3) for x in page.ELSEWHERE}
        return {**_kept(accuracy, data="here"), "elsewhere": elsewhere}

    results = {"alfa+random": {"6000": everywhere(0.6)}, "maml": {"6000": everywhere(0.1)}}
    assert page.against_longer(results) == []
    longer = everywhere(0.5)
    longer["elsewhere"]["cub"] = _kept(0.7)
    results["maml"]["15000"] = longer
    title, _, head, _, row, _ = page.against_longer(results)
    assert title == "### After 6,000 iterations, against MAML after 15,000"
    names, figures = ([cell.strip() for cell in line.split("|")[2:-1]] for line in (head, row))
    assert names == ["cifar-fs", *page.ELSEWHERE]
    found = dict(zip(names, (figure.split()[0] for figure in figures), strict=True))
    assert found["cifar-fs"] == found["omniglot"] == "+10.00"
    assert found["cub"] == "-20.00"
    with pytest.raises(ValueError, match="other images cannot be compared"):
        page.against_longer({**results, "maml": {"15000": {**longer, "data": "there"}}})


def test_the_rest_of_the_queue_is_reported(claims, monkeypatch) -> None:
    done = {name: {str(entry.num_iterations): {}} for name, entry in claims.QUEUE.items()}
    assert claims.left_over(done) == []
    del done["seed-1"], done["maml"]
    monkeypatch.setattr(claims, "reached", lambda name: 6_500 if name == "maml" else 0)
    told = ["Not complete yet: `maml` (6,500 of 15,000 iterations).", ""]
    told += ["Further comparisons in the queue that were not run: `seed-1`.", ""]
    assert claims.left_over(done) == told


def test_every_run_is_listed_with_its_command_at_its_full_length(page) -> None:
    trained = {**_kept(0.5), "seconds": 90.0}
    results = {"maml": {"2000": trained, "6000": {**trained, "seconds": 600.0}}}
    results["alfa+maml"] = {"15000": {**trained, "seconds": 3600.0}}
    results |= {"seed-1": {"2000": trained}, "random": {"500": {**trained, "seconds": 0.0}}}
    assert page.runs_of({}) == []
    rows = [line.split(" | ") for line in page.runs_of(results) if "claims.py " in line]
    names = ["random", "maml", "alfa+maml", "seed-1"]
    assert [row[0] for row in rows] == [f"| [`{name}`](runs/claims/{name})" for name in names]
    assert [row[1].split("claims.py ")[1].strip("`") for row in rows] == [
        *("run random", "until 6000 maml", "run alfa+maml", "run seed-1")
    ]
    assert [row[2:5] for row in rows] == [
        *(["0", "-", "0"], ["0", "6,000", "10"], ["0", "15,000", "60"], ["1", "2,000", "2"])
    ]


def test_a_change_changes_nothing_else(page) -> None:
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


def test_undecided_changes_are_repeated_with_another_seed(page) -> None:
    assert set(page.REPEATED) <= set(page.VARIANTS)
    seeds = {name: entry.content(1)["seed"] for name, entry in page.QUEUE.items()}
    assert [name for name, seed in seeds.items() if seed] == [
        "seed-1",
        *(f"seed-1-{name}" for name in page.REPEATED),
    ]
