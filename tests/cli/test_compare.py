"""`alfa compare`: runs on the same tasks, and which differences are more than their choice."""

from __future__ import annotations

import json
import shutil

import pytest

from alfa.train import Run, judge


@pytest.fixture
def other(alfa, tmp_path, settings):
    path = tmp_path / "other"
    assert alfa("train", "sinusoid-maml", "--out", path, *settings, "--json").code == 0
    return path


def test_runs_are_compared_on_the_same_tasks(alfa, trained, other) -> None:
    first, second = json.loads(
        alfa("compare", trained, other, "--num-tasks", "6", "--seed", "3", "--json").out
    )
    assert (first["difference"], first["is_decided"]) == (0.0, False)
    ours, theirs = (judge(Run(path), num_tasks=6, seed=3)[0] for path in (trained, other))
    assert (first["per_task"], second["per_task"]) == (list(ours.per_task), list(theirs.per_task))
    assert second["difference"] == pytest.approx(theirs.loss - ours.loss, rel=1e-6)
    assert second["difference_interval"] > 0


def test_the_table_says_what_is_decided(alfa, trained, other, monkeypatch) -> None:
    monkeypatch.setattr("alfa.train.compare._FEWEST_TASKS", 2)
    words = (trained, other, trained, "--num-tasks", "6", "--num-steps", "0")
    rows = json.loads(alfa("compare", *words, "--json").out)
    # Without a step the two are what they began as, which differs on every task.
    assert [row["is_decided"] for row in rows] == [False, True, False]
    answer = alfa("compare", *words)
    assert answer.code == 0
    lines = [line for line in answer.out.splitlines() if "loss" in line][1:3]
    assert [line.split()[-1] for line in lines] == ["decided", "undecided"]
    assert "Over the same 6 test tasks" in answer.out
    assert "decide nothing" not in answer.out
    assert "lower is better" in answer.out


def test_too_few_tasks_are_told(alfa, trained, other) -> None:
    answer = alfa("compare", trained, other, "--num-tasks", "6", "--num-steps", "0")
    assert "Fewer than 30 tasks decide nothing." in answer.out


def test_a_run_does_not_differ_from_its_copy(alfa, trained, tmp_path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    _, second = json.loads(alfa("compare", trained, copy, "--json").out)
    assert (second["difference"], second["is_decided"]) == (0.0, False)


def test_one_run_is_nothing_to_compare(refused, trained) -> None:
    assert "a comparison takes two runs or more" in refused("compare", trained)


def test_runs_with_other_tasks_are_told(alfa, refused, trained, tmp_path, settings) -> None:
    path = tmp_path / "shots"
    words = ("--set", "tasks.num_support=3", "--json")
    assert alfa("train", "sinusoid-maml", "--out", path, *settings, *words).code == 0
    told = refused("compare", trained, path)
    assert "have different tasks (tasks.num_support is" in told
    assert "and 3)" in told
    assert "--dataset" not in told


def test_runs_are_compared_on_tasks_of_another_size(alfa, refused, trained, other) -> None:
    words = (trained, other, "--num-tasks", "3", "--set", "tasks.num_support=4")
    rows = json.loads(alfa("compare", *words, "--json").out)
    changes = ["tasks.num_support=4"]
    for row, path in zip(rows, (trained, other), strict=True):
        expected, _ = judge(Run(path), changes=changes, num_tasks=3, seed=0)
        assert row["per_task"] == list(expected.per_task)
    assert "an evaluation can change the tasks only" in refused(
        *("compare", *words[:2]), "--set", "seed=1"
    )


def test_a_size_is_one_of_another_dataset(refused, trained, other) -> None:
    told = refused("compare", trained, other, "--size", "32")
    assert "--size is 32, which is that of another dataset, but there is no --dataset" in told


def test_no_run_is_told(refused, trained, tmp_path) -> None:
    assert str(tmp_path / "none") in refused("compare", trained, tmp_path / "none")
