"""The queue that measures the paper's claims goes on where it was, and says what it found."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

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


def test_what_was_stopped_while_it_was_tested_is_tested(claims) -> None:
    entry = claims.QUEUE["maml"]
    lengths = [0]
    while lengths[-1] < entry.num_iterations:
        lengths.append(claims.next_goal(entry, 15_000, lengths[-1], tested=lengths))
    assert lengths == list(range(0, 15_001, 500))
    for done in (2_000, 6_000):
        assert claims.next_goal(entry, 15_000, done, tested=[]) == done
        assert claims.next_goal(entry, 15_000, done, tested=[done]) == done + 500
    # In the middle of an epoch, and beyond what is asked for.
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
def test_rows_are_tested_elsewhere_at_the_lengths_that_are_compared(
    claims, monkeypatch, length: int, is_elsewhere: bool
) -> None:
    experiment = SimpleNamespace(tasks=SimpleNamespace(name="images"))
    result = {
        "num_iterations": length,
        "num_meta_parameters": 1,
        "test": {"num_tasks": 600, "accuracy": _evaluated(0.5).accuracy},
        "config": {"outer": {"num_iterations": length}},
        "best_iteration": length,
        "val_accuracy": 0.5,
        "seconds": 1.0,
    }
    run = SimpleNamespace(
        exists=True, path=Path("run"), read_result=lambda: result, experiment=lambda: experiment
    )
    monkeypatch.setattr(claims, "Run", lambda path: run)
    monkeypatch.setattr(claims, "progress", lambda path: length)
    monkeypatch.setattr(claims, "set_up", lambda *_, **__: None)
    monkeypatch.setattr(claims, "on_dataset", lambda dataset, tasks: dataset)
    judged: list[Any] = []

    def judge(run: Any, changes: Any = None, num_tasks: int = 0) -> tuple[Any, None]:
        judged.append(changes)
        return _evaluated(0.5), None

    monkeypatch.setattr(claims, "judge", judge)
    # The second time, all is known.
    for _ in range(2):
        claims.note("maml")
    assert judged == [None, *(claims.ELSEWHERE if is_elsewhere else ())]
    found = json.loads(claims.RESULTS.read_text())["maml"]
    assert list(found) == [str(length)]
    assert set(found[str(length)].get("elsewhere", ())) == set(judged) - {None}


def test_what_is_said_of_a_claim(claims) -> None:
    def kept(accuracy: float, bend: float = 0.0) -> dict[str, Any]:
        found = _evaluated(accuracy)
        per_task = [a + bend * (-1) ** i for i, a in enumerate(found.per_task)]
        return {"test": found.as_dict(), "per_task": per_task}

    better, worse = kept(0.6), kept(0.5, bend=1e-3)
    assert claims.verdict(better, worse) == ["+10.00 +- 0.03", "confirmed"]
    told = "not confirmed: it is the other way round"
    assert claims.verdict(worse, better) == ["-10.00 +- 0.03", told]
    # Where the paper has it so, too, nobody is surprised.
    assert claims.verdict(worse, better, 0.5)[1] == told
    assert claims.verdict(worse, better, -0.5)[1] == f"{told}, as in the paper on this data"
    assert claims.verdict(better, worse, -0.5)[1] == "confirmed"
    assert claims.verdict(kept(0.51), kept(0.5, bend=0.1))[1] == "not decided at this length"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("random", 39.87), ("alfa+maml+l2f", 76.60), ("1-shot-maml", 56.80), ("fc100-maml", 49.38)],
)
def test_the_papers_figure_of_an_entry(claims, name: str, expected: float) -> None:
    assert claims.published(name) == expected


def test_every_change_of_our_defaults_is_told(claims) -> None:
    assert list(claims.CHANGES) == list(claims.VARIANTS)
    assert claims.our_defaults({}) == []

    def kept(accuracy: float) -> dict[str, Any]:
        found = _evaluated(accuracy)
        return {"test": found.as_dict(), "per_task": found.per_task}

    short = str(claims.SHORT)
    results = {"alfa+maml": {short: kept(0.5)}, "depth-2": {short: kept(0.6)}}
    results["beta-factor"] = {short: kept(0.4)}
    results |= {"seed-1": {short: kept(0.3)}, "seed-1-state-gradient-none": {short: kept(0.2)}}
    lines = [line for line in claims.our_defaults(results) if "`" in line]
    assert [line.split("|")[2].strip(" `") for line in lines] == [
        *("alfa+maml", "depth-2", "beta-factor", "seed-1", "seed-1-state-gradient-none")
    ]
    assert [line.split("|")[3].strip() for line in lines] == ["0", "0", "0", "1", "1"]
    assert [line.split("|")[6].strip() for line in lines] == [
        *("", "the default is worse", "the default is better", "", "the default is better")
    ]


def test_what_one_seed_does_not_settle_is_trained_from_another(claims) -> None:
    assert set(claims.REPEATED) <= set(claims.VARIANTS)
    seeds = {name: entry.content(1)["seed"] for name, entry in claims.QUEUE.items()}
    assert [name for name, seed in seeds.items() if seed] == [
        "seed-1",
        *(f"seed-1-{name}" for name in claims.REPEATED),
    ]
