"""`alfa compare`: runs on the same tasks, and the significance of their differences."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from pathlib import Path

import pytest

from alfa.cli.main import main
from alfa.evaluation import evaluate_run
from alfa.runs import Run


@pytest.fixture
def other(alfa, tmp_path, settings):
    path = tmp_path / "other"
    words = ["train", "sinusoid", "--method", "maml", "--out", path, *settings, "--json"]
    assert alfa(*words).code == 0
    return path


def test_runs_are_compared_on_the_same_tasks(alfa, trained, other) -> None:
    first, second = json.loads(
        alfa("compare", trained, other, "--num-tasks", "6", "--seed", "3", "--json").out
    )
    assert (first["difference"], first["is_decided"]) == (0.0, False)
    ours, theirs = (evaluate_run(Run(path), num_tasks=6, seed=3) for path in (trained, other))
    assert (first["per_task"], second["per_task"]) == (list(ours.per_task), list(theirs.per_task))
    assert second["difference"] == pytest.approx(theirs.loss - ours.loss, rel=1e-6)
    assert second["difference_interval"] > 0


def test_the_table_says_what_is_decided(alfa, trained, other, monkeypatch) -> None:
    monkeypatch.setattr("alfa.evaluation.Difference.fewest_tasks", 2)
    words = (trained, other, trained, "--num-tasks", "6", "--num-steps", "0")
    rows = json.loads(alfa("compare", *words, "--json").out)
    # Without inner steps, both models are their inits, which differ on every task.
    assert [row["is_decided"] for row in rows] == [False, True, False]
    answer = alfa("compare", *words)
    assert answer.code == 0
    lines = [line for line in answer.out.splitlines() if "loss" in line][1:3]
    assert [line.endswith(" not significant") for line in lines] == [False, True]
    assert all(line.endswith(" significant") for line in lines)
    assert "Over the same 6 test tasks" in answer.out
    assert "fewer than" not in answer.out
    assert "lower is better" in answer.out


def test_too_few_tasks_are_told(alfa, trained, other) -> None:
    answer = alfa("compare", trained, other, "--num-tasks", "6", "--num-steps", "0")
    assert "No difference is significant with fewer than 30 tasks." in answer.out


def test_a_run_does_not_differ_from_its_copy(alfa, trained, tmp_path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    _, second = json.loads(alfa("compare", trained, copy, "--json").out)
    assert (second["difference"], second["is_decided"]) == (0.0, False)


def test_one_run_is_nothing_to_compare(refused, trained) -> None:
    assert "a comparison requires at least two runs" in refused("compare", trained)


def test_runs_with_other_tasks_are_told(alfa, refused, trained, tmp_path, settings) -> None:
    path = tmp_path / "shots"
    words = ("--set", "tasks.num_support=3", "--json")
    assert alfa("train", "sinusoid", "--method", "maml", "--out", path, *settings, *words).code == 0
    told = refused("compare", trained, path)
    assert "have different tasks (tasks.num_support is" in told
    assert "and 3)" in told
    assert "--dataset" not in told


def test_runs_are_compared_on_tasks_of_another_size(alfa, refused, trained, other) -> None:
    words = (trained, other, "--num-tasks", "3", "--set", "tasks.num_support=4")
    rows = json.loads(alfa("compare", *words, "--json").out)
    changes = ["tasks.num_support=4"]
    for row, path in zip(rows, (trained, other), strict=True):
        expected = evaluate_run(Run(path), overrides=changes, num_tasks=3, seed=0)
        assert row["per_task"] == list(expected.per_task)
    assert "--set can change only the tasks of a trained run" in refused(
        *("compare", *words[:2]), "--set", "seed=1"
    )


def test_a_size_is_one_of_another_dataset(refused, trained, other) -> None:
    told = refused("compare", trained, other, "--size", "32")
    assert "--size requires --dataset" in told


def test_no_run_is_told(refused, trained, tmp_path) -> None:
    assert str(tmp_path / "none") in refused("compare", trained, tmp_path / "none")


# --- groups of seeds


@pytest.fixture(scope="module")
def groups(tmp_path_factory, settings) -> list[Path]:
    """Two folders with runs of two seeds each."""
    folder = tmp_path_factory.mktemp("groups")
    paths = [folder / method for method in ("maml", "alfa+maml")]
    for path in paths:
        words = ["train", "sinusoid", "--method", path.name, "--seeds", "2", "--out", str(path)]
        with pytest.raises(SystemExit) as caught:
            main([*words, *settings, "--json"])
        assert caught.value.code == 0
    return paths


def test_groups_are_compared_over_tasks_and_seeds(alfa, groups) -> None:
    words = ("--num-tasks", "6", "--json")
    first, second = json.loads(alfa("compare", *groups, *words).out)
    runs = [json.loads(alfa("compare", *sorted(group.iterdir()), *words).out) for group in groups]
    for group, expected in zip((first, second), runs, strict=True):
        assert [run["loss"] for run in group["runs"]] == [run["loss"] for run in expected]
        losses = [run["loss"] for run in expected]
        assert group["loss"] == pytest.approx(statistics.fmean(losses), rel=1e-6)
        assert group["seeds"]["std"] == pytest.approx(statistics.stdev(losses))
        # With two runs, Student's t has one degree of freedom.
        width = 12.706 * statistics.stdev(losses) / math.sqrt(2)
        assert group["seeds"]["interval"] == pytest.approx(width, rel=1e-4)
        means = [statistics.fmean(x) for x in zip(*(r["per_task"] for r in expected), strict=True)]
        assert group["per_task"] == pytest.approx(means)
    assert second["difference"] == pytest.approx(second["loss"] - first["loss"], rel=1e-6)
    assert second["difference_seed_interval"] > 0


def test_a_difference_within_the_seeds_is_undecided(alfa, groups, monkeypatch) -> None:
    monkeypatch.setattr("alfa.evaluation.Difference.fewest_tasks", 2)
    words = ("--num-tasks", "6", "--num-steps", "0")
    singles = [next(iter(sorted(group.iterdir()))) for group in groups]
    _, decided = json.loads(alfa("compare", *singles, *words, "--json").out)
    assert decided["is_decided"]
    rows = json.loads(alfa("compare", *groups, *words, "--json").out)
    assert abs(rows[1]["difference"]) < rows[1]["difference_seed_interval"]
    assert not rows[1]["is_decided"]
    monkeypatch.setattr("alfa.evaluation.seed_difference_interval", lambda *figures: 0.0)
    rows = json.loads(alfa("compare", *groups, *words, "--json").out)
    assert rows[1]["is_decided"] == (abs(rows[1]["difference"]) > rows[1]["difference_interval"])


def test_the_table_has_groups_runs_and_seeds(alfa, groups, trained, monkeypatch) -> None:
    monkeypatch.chdir(groups[0].parent)
    answer = alfa("compare", "maml", "alfa+maml", "--num-tasks", "6")
    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines() if line]
    assert [line[0] for line in lines[1:7]] == [
        *("maml", "seed-0", "seed-1"),
        *("alfa+maml", "seed-0", "seed-1"),
    ]
    assert "over seeds" in answer.out
    assert lines[1].count("std") == lines[4].count("std") == 1
    assert "exceeds the interval over tasks and the interval over seeds" in answer.out
    mixed = alfa("compare", trained, groups[0], "--num-tasks", "6")
    assert "other seeds may differ" in mixed.out


def test_one_group_has_statistics_of_its_own(alfa, groups) -> None:
    (group,) = json.loads(alfa("compare", groups[0], "--num-tasks", "3", "--json").out)
    assert group["seeds"]["num_runs"] == 2
    answer = alfa("compare", groups[0], "--num-tasks", "3")
    assert answer.code == 0
    assert "minus" not in answer.out
