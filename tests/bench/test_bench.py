"""The measurements: what is compared computes the same, and takes turns."""

from __future__ import annotations

import pytest
import torch

from alfa.bench import WORKS, Work, compare, measure, rivals_of
from alfa.bench.limit import convolutions
from alfa.bench.plain import Plain, PlainConv4, PlainMLP, WithHigher
from alfa.bench.worker import Worker
from alfa.ops.stages import Conv

SMALL = Work("small", 16, 1, 1, 2)
SINUSOID = WORKS["sinusoid"]


def gradients(learner):
    return [parameter.grad.clone() for parameter in learner.meta_parameters()]


@pytest.mark.parametrize("engine", [Plain, WithHigher])
@pytest.mark.parametrize("work", [SMALL, SINUSOID], ids=["images", "sinusoid"])
def test_every_engine_computes_the_same(engine, work) -> None:
    learner, episode = work.learner(torch.float64), work.episode(torch.float64)
    episode = episode.to("cpu", torch.float64)
    loss = learner(episode).query_losses.mean()
    loss.backward()
    ours = [loss.detach(), *gradients(learner)]
    model = (PlainMLP if work.size is None else PlainConv4)(learner.model)
    theirs = [engine(learner, model)(episode), *gradients(learner)]
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def count_products(monkeypatch, run):
    """How many products of convolutions a run makes: for each layer, by its input's channels."""
    products: dict[int, int] = {}

    def counted(name, of):
        original = getattr(Conv, name)

        def wrapped(self, *args, **options):
            tape = args[-1]
            channels = tape.w[0].shape[2]
            products[channels] = products.get(channels, 0) + of(options)
            return original(self, *args, **options)

        monkeypatch.setattr(Conv, name, wrapped)

    counted("forward", lambda options: 1)
    counted("backward", lambda options: 1 + options["need_dx"])
    counted("tangent", lambda options: 0)
    counted("backward_tangent", lambda options: 2 + 4 * options["need_dx"])
    run()
    return products


@pytest.mark.parametrize("train", [True, False])
def test_the_limit_makes_the_products_of_an_iteration(monkeypatch, train) -> None:
    learner, episode = SMALL.learner(), SMALL.episode()
    products = count_products(monkeypatch, convolutions(learner, episode, train=train))
    # The support sets lie side by side; the query sets of the two tasks are too large for that.
    per_step, query = ((4, 9), (2, 3)) if train else ((2, 3), (1, 1))
    first, other = (5 * per_step[layer] + 2 * query[layer] for layer in (0, 1))
    assert products == {1: first, 48: 3 * other}


def test_an_iteration_makes_no_more_products_than_the_limit(monkeypatch) -> None:
    learner, episode = SMALL.learner(), SMALL.episode()

    def run():
        learner(episode).query_losses.mean().backward()

    assert count_products(monkeypatch, run) == {1: 5 * 4 + 2 * 2, 48: 3 * (5 * 9 + 2 * 3)}


@pytest.mark.parametrize("work", WORKS)
def test_every_work_has_something_to_be_measured_against(work) -> None:
    assert "plain" in rivals_of(work)
    assert ("limit" in rivals_of(work)) == (WORKS[work].size is not None)


def test_higher_is_left_out_where_it_is_not_installed(monkeypatch) -> None:
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: None)
    assert rivals_of("sinusoid") == ["plain"]


def test_two_processes_take_turns_and_the_best_round_counts(monkeypatch) -> None:
    turns: list[str] = []
    times = {"alfa": iter([9, 0.1, 0.3, 0.2, 0.25]), "plain": iter([9, 1.0, 0.9, 0.8, 1.1])}

    class Fake:
        def __init__(self, work, engine, *, keep_memory):
            self.engine, self.keep_memory = engine, keep_memory
            assert keep_memory == (engine == "alfa")

        def run(self, iterations):
            turns.append(f"{self.engine} {iterations}")
            return {"seconds": next(times[self.engine]), "peak": 7, "loss": 0.0}

        def close(self):
            turns.append("closed")

    monkeypatch.setattr(measure, "Worker", Fake)
    monkeypatch.setattr(measure, "_ROUND_SECONDS", 0.5)
    result = compare("train-32", "plain", rounds=3)
    assert turns[4:] == ["alfa 5", "plain 1"] * 3 + ["closed"] * 2
    assert (result.seconds, result.rival_seconds, result.ratio) == (0.2, 0.8, pytest.approx(4))


def test_a_worker_answers_and_ends() -> None:
    worker = Worker("sinusoid", "alfa", keep_memory=True)
    try:
        answer = worker.run(2)
        assert answer["seconds"] > 0
        assert answer["peak"] > 10**7
        expected = WORKS["sinusoid"].iteration("alfa")()
        assert answer["loss"] == pytest.approx(expected, rel=1e-6)
    finally:
        worker.close()
