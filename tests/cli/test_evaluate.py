"""`alfa evaluate`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from alfa import MLP, SGD, LearnedInit, Learner, Run, Sinusoids, evaluate, mse


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder from a custom training loop."""
    model = MLP((1,), 1, hidden=[8])
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
    path = tmp_path_factory.mktemp("saved") / "run"
    Run.save(path, learner, Sinusoids(num_support=7))
    return path


def test_the_configuration_is_parsed_once(alfa, saved, monkeypatch) -> None:
    parsed: list[str] = []
    loads = tomllib.loads

    def counting(text: str, **options: object) -> dict[str, object]:
        # An override is parsed as TOML, too.
        if "[tasks]" in text:
            parsed.append(text)
        return loads(text, **options)

    monkeypatch.setattr(tomllib, "loads", counting)
    options = ["--num-tasks", "3", "--set", "tasks.num_query=5", "--json"]
    answer = alfa("evaluate", saved, *options)
    assert answer.code == 0
    assert len(parsed) == 1
    assert json.loads(answer.out)["tasks"]["num_query"] == 5


def test_a_run_of_a_custom_loop_is_evaluated(alfa, saved) -> None:
    found = json.loads(alfa("evaluate", saved, "--num-tasks", "4", "--json").out)
    run = Run.open(saved)
    expected = evaluate(run.learner(), run.tasks(), num_tasks=4)
    assert (found["loss"], found["interval"]) == (expected.loss, expected.interval)
