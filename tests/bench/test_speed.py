"""Speeds of learners on random images."""

from __future__ import annotations

import pytest
import torch

from alfa.bench import speed as module
from alfa.bench.speed import TaskSizes, measure_speed, pretraining_seconds, random_images
from alfa.data import FewShot, Sinusoids, Tasks
from alfa.inits import FixedInit, LearnedInit
from alfa.learner import Learner
from alfa.models import MLP, Conv4
from alfa.ops import cross_entropy, mse
from alfa.rules import ALFA, SGD

TASKS = random_images(16, way=3, shot=4, num_query=5)
# Hundreds of support images, as in Meta-Dataset.
SIZES = TaskSizes(support=370.0, query=200.0, largest=1_000)


@pytest.fixture(autouse=True)
def _short(monkeypatch, without_numba) -> None:
    """Measure briefly and without compilation; precise figures are not needed here."""
    monkeypatch.setattr(module, "_SECONDS", 0.01)


def learner_for(tasks: Tasks = TASKS, init=LearnedInit, rule=ALFA) -> Learner:
    if isinstance(tasks, Sinusoids):
        model = MLP((1,), 1, hidden=(8,))
    else:
        model = Conv4(tasks.input_shape, tasks.num_outputs, filters=4)
    start = init(model)
    loss = mse if isinstance(tasks, Sinusoids) else cross_entropy
    rules = {"num_steps": 2} if rule is ALFA else {}
    return Learner(model, init=start, rule=rule(start.layers, **rules), loss=loss, num_steps=2)


@pytest.mark.parametrize("rule", [ALFA, SGD])
def test_a_learner_is_measured_on_random_images(rule) -> None:
    found = measure_speed(learner_for(rule=rule), TASKS, num_tasks=2, memory="recompute")
    assert found.mode == "recompute"
    assert 0 < found.iteration < 60
    assert 1e-5 < found.task < 60
    assert found.memory > module._PROGRAM


def test_a_learner_with_nothing_to_train_has_no_iterations() -> None:
    learner = learner_for(init=FixedInit, rule=SGD)
    found = measure_speed(learner, TASKS, num_tasks=2)
    assert (found.iteration, found.mode) == (0, "")
    assert found.memory > module._PROGRAM


def test_perceptrons_are_measured_on_their_own_tasks() -> None:
    # Also in float64.
    tasks = Sinusoids()
    learner = learner_for(tasks).double()
    assert measure_speed(learner, tasks, num_tasks=4).iteration > 0


@pytest.mark.parametrize(("at_once", "timed"), [(1, {1}), (2, {4})])
def test_one_task_is_timed_if_tasks_are_computed_one_at_a_time(at_once, timed, monkeypatch) -> None:
    drawn: list[int] = []
    draw = FewShot.episode

    def drawing(self, index, *, num_tasks, **options):
        if "split" not in options:
            drawn.append(num_tasks)
        return draw(self, index, num_tasks=num_tasks, **options)

    monkeypatch.setattr(FewShot, "episode", drawing)
    found = measure_speed(learner_for(), TASKS, num_tasks=4, tasks_at_once=at_once)
    assert found.iteration > 0
    # The first draw is for planning the memory.
    assert drawn[0] == 4
    assert set(drawn[1:]) == timed


def test_a_very_long_iteration_is_extrapolated_from_smaller_ones(monkeypatch) -> None:
    """The extrapolation is exact if time is linear in the number of images."""
    tasks = random_images(16, way=3, shot=5, num_query=15)
    seen = []

    def iterate(small) -> float:
        seen.append((small.shot, small.num_query))
        return 10.0 + 3.0 * small.shot + 0.5 * small.num_query

    assert module._extrapolated(tasks, None, iterate) == pytest.approx(10 + 15 + 7.5)
    assert (5, 15) in seen
    seen.clear()
    monkeypatch.setattr(module, "_LONGEST", 20.0)
    assert module._extrapolated(tasks, None, iterate) == pytest.approx(10 + 15 + 7.5)
    assert (5, 15) not in seen


def test_tasks_of_any_size_are_extrapolated_from_small_ones(monkeypatch) -> None:
    monkeypatch.setattr(module, "_LONG", 1.0)
    tasks = random_images(16)
    found = measure_speed(learner_for(tasks), tasks, num_tasks=1, sizes=SIZES)
    # Timings vary on a busy machine; the next test is exact.
    assert 0 < found.task < 60
    assert 0 < found.iteration < 60
    assert found.memory > module._PROGRAM


def test_time_that_is_linear_in_the_images_is_extrapolated_exactly() -> None:
    def timed(some) -> float:
        return 7.0 + 0.2 * some.way * some.shot + 0.05 * some.way * some.num_query

    expected = 7 + 0.2 * SIZES.support + 0.05 * SIZES.query
    assert module._extrapolated(random_images(16), SIZES, timed) == pytest.approx(expected)


def test_memory_of_the_largest_tasks_has_the_weights_once() -> None:
    def work(tasks) -> None:
        num_images = tasks.way * (tasks.shot + tasks.num_query)
        weights, images = torch.zeros(1_000_000), torch.zeros(num_images, 1_000)
        assert len(weights) > len(images)

    found = module._largest_memory(random_images(16), SIZES, work)
    assert found == 4 * (1_000_000 + 1_000 * 1_000)


def test_the_time_of_pretraining_is_proportional_to_its_images(monkeypatch) -> None:
    monkeypatch.setattr(module, "_typical", lambda work: 0.5)
    model = Conv4((3, 16, 16), 5, filters=4)
    assert pretraining_seconds(model, 16, num_images=24) == 24 * 0.5 / module._BATCH
