"""`alfa train`: what it says of the way it computes."""

from __future__ import annotations

import json

import pytest

import alfa.train as alfa_train
from alfa.config import load_experiment


def test_json_says_how_memory_was_used(alfa, tmp_path, settings) -> None:
    command = ["train", "sinusoid-maml", "--out", tmp_path / "run", *settings, "--json"]
    answer = alfa(*command, "--set", "engine.tasks_at_once=2")
    assert answer.code == 0
    assert json.loads(answer.out)["engine"] == {
        "memory": "store",
        "tasks_at_once": 2,
        "processes": 1,
    }


def test_plain_lines_say_which_part_was_chosen(alfa, tmp_path, settings) -> None:
    command = ["train", "sinusoid-maml", "--out", tmp_path / "run", *settings]
    answer = alfa(*command, "--set", "engine.tasks_at_once=2")
    told = "run: memory: store (chosen), 2 tasks at once (as asked for); needs about 0.0 GB"
    assert answer.err.startswith(told)


def test_a_preset_is_a_built_in_experiment(alfa, tmp_path, monkeypatch) -> None:
    asked = []

    def train(experiment, path, **options):
        asked.append((experiment, path))
        raise KeyboardInterrupt

    monkeypatch.setattr(alfa_train, "train", train)
    monkeypatch.chdir(tmp_path)
    for words in (["--preset", "strokes-demo"], ["strokes-demo"]):
        assert alfa("train", *words, "--set", "outer.num_iterations=3").code == 130
    assert asked[0] == asked[1]
    assert asked[0][0] == load_experiment("strokes-demo", ["outer.num_iterations=3"])
    assert str(asked[0][1]) == "runs/strokes-demo"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--preset", "strokes-dem"], "no built-in experiment 'strokes-dem'; there are cifar-fs"),
        (["--preset", "strokes-dem"], "Did you mean 'strokes-demo'?"),
        (["--preset", "mine.toml"], "there is no built-in experiment 'mine.toml'"),
        (["strokes-alfa", "--preset", "strokes-demo"], "EXPERIMENT and --preset each say what"),
        (["--preset", "strokes-demo", "--resume", "run"], "leave --preset away"),
    ],
)
def test_a_preset_that_does_not_fit_is_refused(refused, words, told) -> None:
    assert told in refused("train", *words)
