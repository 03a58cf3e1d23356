"""Ranks of several runs on several sources."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alfa.config import parse_experiment
from alfa.train import Evaluation, Run, average_ranks, judged_once, ranks, train
from alfa.train import leaderboard as module


def make(mean: float, *, noise: float = 0.0, seed: int = 0, num_tasks: int = 200) -> Evaluation:
    """Accuracies that vary with the difficulty of the tasks, and a little with the model."""
    difficulty = np.random.default_rng(99).normal(0, 0.1, num_tasks)
    own = np.random.default_rng(seed).normal(0, noise, num_tasks) if noise else 0.0
    values = mean + difficulty + own
    return Evaluation(
        loss=0.0,
        interval=0.1,
        accuracy=float(np.mean(values)),
        accuracy_interval=0.01,
        num_tasks=num_tasks,
        num_steps=5,
        split="test",
        seed=0,
        batch_norm=None,
        per_task=tuple(float(v) for v in values),
    )


def test_the_best_is_first() -> None:
    found = [make(0.5, noise=0.01, seed=1), make(0.7), make(0.6, noise=0.01, seed=2)]
    assert ranks(found) == [3, 1, 2]


def test_what_chance_explains_is_shared() -> None:
    """Differences far below the intervals count, as they are taken task by task."""
    found = [
        make(0.60, noise=0.05, seed=1),
        make(0.602, noise=0.05, seed=2),
        make(0.70, noise=0.05, seed=3),
        make(0.50, noise=0.05, seed=4),
    ]
    assert ranks(found) == [2.5, 2.5, 1, 4]
    decided = [make(0.60, noise=0.001, seed=1), make(0.605, noise=0.001, seed=2)]
    assert ranks(decided) == [2, 1]


def test_all_alike_share_the_mean() -> None:
    assert ranks([make(0.5, noise=0.1, seed=n) for n in range(3)]) == [2, 2, 2]
    assert ranks([make(0.5)]) == [1]


def test_few_tasks_decide_nothing() -> None:
    found = [make(mean, noise=0.01, seed=1, num_tasks=20) for mean in (0.2, 0.8)]
    assert ranks(found) == [1.5, 1.5]


def test_ranks_are_averaged_over_sources() -> None:
    high, low = make(0.8, noise=0.01, seed=1), make(0.3, noise=0.01, seed=2)
    assert average_ranks({"one": [high, low], "two": [high, low]}) == [1, 2]
    assert average_ranks({"one": [high, low], "two": [low, high]}) == [1.5, 1.5]


@pytest.fixture
def run(spots, tmp_path) -> Run:
    experiment = parse_experiment(
        {
            "tasks": {
                "name": "meta-dataset",
                "dataset": "spots",
                "size": 8,
                "min_way": 2,
                "max_way": 4,
                "max_query": 2,
                "max_support": 12,
            },
            "model": {"name": "conv4", "filters": 4, "num_blocks": 2},
            "init": {"name": "zero-head"},
            "inner": {"num_steps": 1, "order": "first", "batch_norm": "inductive"},
            "outer": {"num_iterations": 1, "num_tasks": 1, "num_val_tasks": 2},
            "test": {"num_tasks": 2, "ensemble": 1},
        }
    )
    train(experiment, tmp_path / "run")
    return Run(tmp_path / "run")


def test_a_source_is_tested_once(run, monkeypatch) -> None:
    first = judged_once(run, "spots", num_tasks=4, seed=1)
    assert len(first.per_task) == 4
    calls = []
    original = module.judge

    def judge(*args, **options):
        calls.append(options["num_tasks"])
        return original(*args, **options)

    monkeypatch.setattr(module, "judge", judge)
    assert judged_once(run, "spots", num_tasks=4, seed=1) == first
    assert calls == []
    # Another number of tasks, another seed, or a damaged file: tested again.
    assert judged_once(run, "spots", num_tasks=3, seed=1).per_task == first.per_task[:3]
    assert judged_once(run, "spots", num_tasks=3, seed=2).per_task != first.per_task[:3]
    (path,) = (run.path / "tests").glob("leaderboard-*.json")
    path.write_text('{"found":' * 5000)
    judged_once(run, "spots", num_tasks=3, seed=2)
    assert calls == [3, 3, 3]
    content = json.loads(path.read_text())
    content["kind"]["num_iterations"] = 0
    path.write_text(json.dumps(content))
    judged_once(run, "spots", num_tasks=3, seed=2)
    assert len(calls) == 4
