"""Speeds of experiments, measured without their data."""

from __future__ import annotations

import pytest

from alfa.bench import speed as module
from alfa.bench.speed import measure_speed
from alfa.config import load_experiment
from alfa.train import Pretraining

SMALL = (
    *("tasks.dataset=nowhere", "tasks.size=16", "model.filters=4", "tasks.way=3", "tasks.shot=4"),
    *("tasks.num_query=5", "inner.num_steps=2"),
)


@pytest.fixture(autouse=True)
def _short(monkeypatch) -> None:
    """Nobody needs exact figures here."""
    monkeypatch.setattr(module, "_WHILE", 0.1)


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
    # Also in doubles, as everything here.
    small = ["model.hidden=[8]", "engine.dtype=float64"]
    assert measure_speed(load_experiment("sinusoid-alfa", small)).iteration > 0


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


VARIED = ("tasks.size=16", "tasks.dataset=nowhere", "model.filters=4", "inner.num_steps=2")


def test_tasks_of_any_size_are_extrapolated_from_small_ones(monkeypatch) -> None:
    experiment = load_experiment("varied-alfa", VARIED)
    support, query = module._sizes(experiment)
    # ImageNet's hierarchy: some hundred support images, and ten queries of each class.
    assert 300 < support < 450
    assert 150 < query < 250
    monkeypatch.setattr(module, "_LONG", 1.0)
    found = measure_speed(experiment)
    assert 0 < found.task < found.iteration < 60
    assert found.memory > module._PROGRAM


def test_time_that_is_linear_in_the_images_is_extrapolated_exactly() -> None:
    experiment = load_experiment("varied-alfa", VARIED)
    support, query = module._sizes(experiment)
    tasks = module._tasks(experiment)

    def timed(some) -> float:
        return 7.0 + 0.2 * some.way * some.shot + 0.05 * some.way * some.num_query

    expected = 7 + 0.2 * support + 0.05 * query
    assert module._extrapolated(experiment, tasks, timed) == pytest.approx(expected)


def test_a_backbone_costs_as_many_images_as_it_sees() -> None:
    experiment = load_experiment("varied-alfa", VARIED)
    options = Pretraining(num_epochs=2, batch_size=4, max_batches=3)
    short = module.pretraining_seconds(experiment, options)
    whole = module.pretraining_seconds(experiment, Pretraining(num_epochs=2))
    assert whole / short == pytest.approx(712 * 1_300 / 12, rel=0.9)
