"""Ranks of several runs on several datasets."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

from alfa.config import parse_experiment
from alfa.errors import ConfigError
from alfa.evaluation import Evaluation, average_ranks, difference, evaluate_once, ranks
from alfa.evaluation import _evaluate_run as module
from alfa.runs import Run
from alfa.training import train_run


def make(mean: float, *, noise: float = 0.0, seed: int = 0, num_tasks: int = 200) -> Evaluation:
    """Accuracies that vary with the difficulty of the tasks, and a little with the model."""
    difficulty = np.random.default_rng(99).normal(0, 0.1, num_tasks)
    own = np.random.default_rng(seed).normal(0, noise, num_tasks) if noise else 0.0
    values = mean + difficulty + own
    return Evaluation(
        loss=0.0,
        interval=0.1,
        accuracy=float(np.mean(values)),
        accuracy_interval=1.96 * float(np.std(values, ddof=1)) / math.sqrt(num_tasks),
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
    """Models within an interval of about 0.02 share a rank; the best model is outside of it."""
    found = [
        make(0.60, noise=0.05, seed=1),
        make(0.602, noise=0.05, seed=2),
        make(0.70, noise=0.05, seed=3),
        make(0.50, noise=0.05, seed=4),
    ]
    assert ranks(found) == [2.5, 2.5, 1, 4]


def of_mean(mean: float, interval: float | None, /, **options) -> Evaluation:
    """Return an evaluation with a given mean and interval."""
    settings = {"loss": 0.0, "interval": 0.1, "accuracy": mean, "accuracy_interval": interval}
    settings |= {"num_tasks": 600, "num_steps": 5, "split": "test", "seed": 0, "batch_norm": None}
    return Evaluation(**(settings | options))


def test_ranks_are_those_of_meta_datasets_leaderboard() -> None:
    """|m1 - m2| <= 1.96 sqrt(s1^2 / n1 + s2^2 / n2): the hypotenuse of the two intervals."""
    # Intervals of 0.03 and 0.04 make one of 0.05.
    assert ranks([of_mean(0.55, 0.03), of_mean(0.501, 0.04)]) == [1.5, 1.5]
    assert ranks([of_mean(0.55, 0.03), of_mean(0.499, 0.04)]) == [1, 2]
    # Neither the larger interval nor the sum of both decides.
    assert ranks([of_mean(0.55, 0.03), of_mean(0.505, 0.04)]) == [1.5, 1.5]
    assert ranks([of_mean(0.55, 0.03), of_mean(0.485, 0.04)]) == [1, 2]
    # The second model ties with the best one, although it would also tie with the third.
    three = [of_mean(0.50, 0.03), of_mean(0.54, 0.03), of_mean(0.57, 0.03)]
    assert ranks(three) == [3, 1.5, 1.5]


def test_a_difference_on_every_task_is_not_enough_for_a_rank() -> None:
    """`alfa compare` pairs the tasks, but the leaderboard treats results as independent."""
    found = [make(0.60, noise=0.001, seed=1), make(0.605, noise=0.001, seed=2)]
    assert difference(found[1], found[0]).is_decided
    assert ranks(found) == [1.5, 1.5]


def test_of_losses_the_lower_is_better() -> None:
    found = [of_mean(0.0, None, accuracy=None, loss=loss, interval=0.03) for loss in (0.9, 0.6)]
    assert ranks(found) == [2, 1]
    near = [of_mean(0.0, None, accuracy=None, loss=loss, interval=0.03) for loss in (0.62, 0.6)]
    assert ranks(near) == [1.5, 1.5]
    with pytest.raises(ConfigError, match="cannot be compared with the"):
        ranks([found[0], of_mean(0.5, 0.03)])


def test_ranks_need_the_same_tasks() -> None:
    with pytest.raises(ConfigError, match="but `seed` is 1 and 0"):
        ranks([of_mean(0.6, 0.01), of_mean(0.5, 0.01, seed=1)])


def test_all_alike_share_the_mean() -> None:
    assert ranks([make(0.5, noise=0.1, seed=n) for n in range(3)]) == [2, 2, 2]
    assert ranks([make(0.5)]) == [1]


def test_few_tasks_decide_nothing() -> None:
    found = [make(mean, noise=0.01, seed=1, num_tasks=20) for mean in (0.2, 0.8)]
    assert ranks(found) == [1.5, 1.5]
    assert ranks([of_mean(mean, None, num_tasks=1) for mean in (0.2, 0.8)]) == [1.5, 1.5]


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
    train_run(Run.new(tmp_path / "run", experiment))
    return Run(tmp_path / "run")


def test_a_source_is_tested_once(run, monkeypatch) -> None:
    first = evaluate_once(run, "spots", num_tasks=4, seed=1)
    assert len(first.per_task) == 4
    calls = []
    original = module.evaluate_run

    def evaluate_run(*args, **options):
        calls.append(options["num_tasks"])
        return original(*args, **options)

    monkeypatch.setattr(module, "evaluate_run", evaluate_run)
    assert evaluate_once(run, "spots", num_tasks=4, seed=1) == first
    assert calls == []
    # Another number of tasks, another seed, and a damaged file cause a new evaluation.
    assert evaluate_once(run, "spots", num_tasks=3, seed=1).per_task == first.per_task[:3]
    assert evaluate_once(run, "spots", num_tasks=3, seed=2).per_task != first.per_task[:3]
    (path,) = (run.path / "tests").glob("leaderboard-*.json")
    path.write_text('{"found":' * 5000)
    evaluate_once(run, "spots", num_tasks=3, seed=2)
    assert calls == [3, 3, 3]
    content = json.loads(path.read_text())
    content["kind"]["num_iterations"] = 0
    path.write_text(json.dumps(content))
    evaluate_once(run, "spots", num_tasks=3, seed=2)
    assert len(calls) == 4


def test_a_source_that_is_now_known_for_another_is_tested_again(
    run, spots, tmp_path, monkeypatch
) -> None:
    """Its classes may have a hierarchy, which gives other tasks on the same images."""
    root = tmp_path / "data"
    shutil.copytree(spots, root)
    monkeypatch.setenv("ALFA_DATA", str(root))
    first = evaluate_once(run, "spots", num_tasks=2, seed=1)
    monkeypatch.setattr(module, "evaluate_run", lambda *args, **options: "again")
    assert evaluate_once(run, "spots", num_tasks=2, seed=1) == first
    index = root / "stores" / "spots-8" / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "source": "md-omniglot"}))
    monkeypatch.setattr(module, "asdict", lambda found: found)
    assert evaluate_once(run, "spots", num_tasks=2, seed=1) == "again"
