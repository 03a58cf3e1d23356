"""`alfa train`: what it says of the way it computes."""

from __future__ import annotations

import json


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
