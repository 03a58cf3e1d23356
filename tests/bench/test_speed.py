"""Speeds of experiments, measured without their data."""

from __future__ import annotations

import pytest
import torch

from alfa.bench import speed as module
from alfa.bench.speed import measure_speed
from alfa.config import load_experiment
from alfa.data import FewShot
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
    found = measure_speed(load_experiment(name, [*SMALL, "engine.memory=recompute"]))
    assert found.mode == "recompute"
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


@pytest.mark.parametrize(("at_once", "timed"), [(1, {1}), (2, {4})])
def test_of_tasks_that_come_one_by_one_one_is_timed(at_once, timed, monkeypatch) -> None:
    drawn: list[int] = []
    draw = FewShot.episode

    def drawing(self, index, *, num_tasks, **options):
        if "split" not in options:
            drawn.append(num_tasks)
        return draw(self, index, num_tasks=num_tasks, **options)

    monkeypatch.setattr(FewShot, "episode", drawing)
    settings = [*SMALL, "outer.num_tasks=4", f"engine.tasks_at_once={at_once}"]
    assert measure_speed(load_experiment("strokes-alfa", settings)).iteration > 0
    # The first is for the plan of the memory.
    assert drawn[0] == 4
    assert set(drawn[1:]) == timed


def test_a_very_long_iteration_is_extrapolated_from_smaller_ones(monkeypatch) -> None:
    """Where time is linear in the images, what is extrapolated is what it would take."""
    experiment = load_experiment("strokes-alfa", [*SMALL, "tasks.shot=5", "tasks.num_query=15"])
    tasks = module._tasks(experiment)
    seen = []

    def iterate(small) -> float:
        seen.append((small.shot, small.num_query))
        return 10.0 + 3.0 * small.shot + 0.5 * small.num_query

    assert module._extrapolated(experiment, tasks, iterate) == pytest.approx(10 + 15 + 7.5)
    assert (5, 15) in seen
    seen.clear()
    monkeypatch.setattr(module, "_LONGEST", 20.0)
    assert module._extrapolated(experiment, tasks, iterate) == pytest.approx(10 + 15 + 7.5)
    assert (5, 15) not in seen


VARIED = ("tasks.size=16", "tasks.dataset=nowhere", "model.filters=4", "inner.num_steps=2")


def test_tasks_of_any_size_are_extrapolated_from_small_ones(monkeypatch) -> None:
    experiment = load_experiment("varied-alfa", VARIED)
    support, query = module._sizes(experiment)
    # ImageNet's hierarchy: some hundred support images, and ten queries of each class.
    assert 300 < support < 450
    assert 150 < query < 250
    monkeypatch.setattr(module, "_LONG", 1.0)
    found = measure_speed(experiment)
    # How they compare is up to the moment on a busy machine; the next test is exact.
    assert 0 < found.task < 60
    assert 0 < found.iteration < 60
    assert found.memory > module._PROGRAM


def test_time_that_is_linear_in_the_images_is_extrapolated_exactly() -> None:
    experiment = load_experiment("varied-alfa", VARIED)
    support, query = module._sizes(experiment)
    tasks = module._tasks(experiment)

    def timed(some) -> float:
        return 7.0 + 0.2 * some.way * some.shot + 0.05 * some.way * some.num_query

    expected = 7 + 0.2 * support + 0.05 * query
    assert module._extrapolated(experiment, tasks, timed) == pytest.approx(expected)


def test_memory_of_the_largest_tasks_has_the_weights_once() -> None:
    experiment = load_experiment("varied-alfa", VARIED)

    def work(tasks) -> None:
        num_images = tasks.way * (tasks.shot + tasks.num_query)
        weights, images = torch.zeros(1_000_000), torch.zeros(num_images, 1_000)
        assert len(weights) > len(images)

    # 500 support images, and ten queries of each of 50 classes.
    assert module._of_largest(experiment, work) == 4 * (1_000_000 + 1_000 * 1_000)


def test_a_backbone_costs_as_many_images_as_it_sees(monkeypatch) -> None:
    monkeypatch.setattr(module, "_typical", lambda work: 0.5)
    experiment = load_experiment("varied-alfa", VARIED)
    options = Pretraining(num_epochs=2, batch_size=4, max_batches=3)
    short = module.pretraining_seconds(experiment, options)
    whole = module.pretraining_seconds(experiment, Pretraining(num_epochs=2))
    assert short == 2 * 3 * 4 * 0.5 / module._BATCH
    assert whole == 2 * 712 * 1_300 * 0.5 / module._BATCH
