"""Speeds of experiments, measured without their data."""

from __future__ import annotations

import pytest

from alfa.bench import speed as module
from alfa.bench.speed import measure_speed
from alfa.config import load_experiment

SMALL = (
    *("tasks.dataset=nowhere", "tasks.size=16", "model.filters=4", "tasks.way=3", "tasks.shot=4"),
    *("tasks.num_query=5", "inner.num_steps=2"),
)


@pytest.mark.parametrize("name", ["strokes-alfa", "strokes-maml"])
def test_images_need_not_be_there(name: str) -> None:
    found = measure_speed(load_experiment(name, SMALL))
    assert 0 < found.iteration < 60
    assert 1e-5 < found.task < 60
    assert found.memory > 0


def test_what_has_nothing_to_train_has_no_iterations() -> None:
    found = measure_speed(load_experiment("strokes-maml", [*SMALL, "init.name=fixed"]))
    assert found.iteration == 0
    assert found.memory > 0


def test_perceptrons_are_measured_on_their_own_tasks() -> None:
    assert measure_speed(load_experiment("sinusoid-alfa", ["model.hidden=[8]"])).iteration > 0


def test_a_long_iteration_is_extrapolated_from_smaller_ones(monkeypatch) -> None:
    """Where time is linear in the images, what is extrapolated is what it would take."""
    experiment = load_experiment("strokes-alfa", [*SMALL, "tasks.shot=5", "tasks.num_query=15"])
    tasks = module._tasks(experiment)
    seen = []

    def iterate(small) -> float:
        seen.append((small.shot, small.num_query))
        return 10.0 + 3.0 * small.shot + 0.5 * small.num_query

    assert module._extrapolated(experiment, tasks, iterate) == pytest.approx(10 + 15 + 7.5)
    assert (5, 15) not in seen
    monkeypatch.setattr(module, "_LONG", 1e9)
    assert module._extrapolated(experiment, tasks, iterate) == pytest.approx(10 + 15 + 7.5)
    assert (5, 15) in seen
