"""Iteration over the positions of the inner loop."""

import dataclasses

import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner, adapt, steps
from alfa.models import Conv4
from alfa.ops import cross_entropy, mse
from alfa.rules import SGD
from alfa.types import Episode

MODES = ["store", "recompute"]


@pytest.fixture(params=["conv4", "mlp", "module"])
def case(request, make_mlp, make_learner, make_episode, perturb, rng, randn):
    """Return a function that creates a learner of a kind of model, and its tasks."""

    def make(**options):
        options = {"rule": "alfa", "num_steps": 3, **options}
        if request.param == "conv4":
            model = perturb(Conv4((1, 8, 8), 3, filters=2, num_blocks=2, generator=rng))
            y = torch.arange(3).repeat(2).expand(2, -1)
            episode = Episode(randn(2, 6, 1, 8, 8), y, randn(2, 6, 1, 8, 8), y)
            return make_learner(model, loss=cross_entropy, **options), episode
        model = make_mlp()
        if request.param == "module":
            model = perturb(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)))
        return make_learner(model, **options), make_episode()

    return make


def support_of(episode):
    return episode.support_x, episode.support_y


@pytest.mark.parametrize("order", ["second", "first", "none"])
@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_every_position_equals_an_adaptation_of_its_length(case, memory, order, num_steps):
    learner, episode = case(memory=memory)
    options = {"order": order, "num_steps": num_steps}
    positions = list(learner.steps(*support_of(episode), **options))
    assert len(positions) == num_steps + 1
    for step, position in enumerate(positions):
        separate = learner.adapt(*support_of(episode), order=order, num_steps=step)
        assert torch.equal(position.params.flat, separate.params.flat)
        assert torch.equal(position.support_losses, separate.support_losses)
        assert position.support_losses.shape == (step, 2)
        assert len(position.rates) == step
        assert torch.equal(position.predict(episode.query_x), separate.predict(episode.query_x))


def test_the_first_position_is_the_init(case):
    learner, episode = case()
    first = next(learner.steps(*support_of(episode)))
    theta = torch.cat([learner.model.get_parameter(name).flatten() for name in first.params])
    assert torch.equal(first.params.flat, theta.expand(2, -1))


def test_the_function_and_the_method_agree(case):
    learner, episode = case(rule="sgd")
    options = {"init": learner.init, "rule": learner.rule, "loss": learner.loss}
    own = steps(learner.model, *support_of(episode), num_steps=3, **options)
    for one, other in zip(own, learner.steps(*support_of(episode)), strict=True):
        assert torch.equal(one.params.flat, other.params.flat)
    separate = adapt(learner.model, *support_of(episode), num_steps=3, **options)
    assert torch.equal(one.params.flat, separate.params.flat)


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("order", ["second", "first"])
def test_gradients_through_all_positions_equal_those_of_separate_adaptations(case, order, memory):
    learner, episode = case(order=order, memory=memory)
    parameters = list(learner.meta_parameters())

    def query_loss(adapted):
        return learner.loss(adapted.predict(episode.query_x), episode.query_y).sum()

    weights = [0.1, 0.2, 0.3, 0.4]
    positions = learner.steps(*support_of(episode))
    together = sum(w * query_loss(p) for w, p in zip(weights, positions, strict=True))
    found = torch.autograd.grad(together, parameters, materialize_grads=True)
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    for step, weight in enumerate(weights):
        separate = learner.adapt(*support_of(episode), num_steps=step)
        grads = torch.autograd.grad(query_loss(separate), parameters, materialize_grads=True)
        expected = [total + weight * grad for total, grad in zip(expected, grads, strict=True)]
    assert any(bool(grad.any()) for grad in expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("memory", MODES)
def test_backward_at_every_position_accumulates_the_same_gradients(case, memory):
    learner, episode = case(memory=memory)
    parameters = list(learner.meta_parameters())
    losses = [
        learner.loss(position.predict(episode.query_x), episode.query_y).sum()
        for position in learner.steps(*support_of(episode))
    ]
    expected = torch.autograd.grad(
        sum(losses), parameters, retain_graph=True, materialize_grads=True
    )
    for loss in losses:
        loss.backward(retain_graph=True)
    for parameter, wanted in zip(parameters, expected, strict=True):
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


# The mode of autograd


@pytest.mark.parametrize("order", ["second", "first", "none"])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_mode_of_autograd_does_not_leak(case, order, is_enabled):
    learner, episode = case()
    with torch.set_grad_enabled(is_enabled):
        for position in learner.steps(*support_of(episode), order=order):
            assert torch.is_grad_enabled() == is_enabled
            assert position.params.flat.requires_grad == (is_enabled and order != "none")
        assert torch.is_grad_enabled() == is_enabled


@pytest.mark.parametrize("order", ["second", "none"])
def test_the_mode_of_autograd_does_not_leak_from_a_stopped_iterator(case, order):
    learner, episode = case()
    iterator = learner.steps(*support_of(episode), order=order)
    next(iterator)
    next(iterator)
    assert torch.is_grad_enabled()
    del iterator
    assert torch.is_grad_enabled()


def test_a_caller_may_change_the_mode_between_steps(case):
    learner, episode = case(order="second")
    expected = learner.adapt(*support_of(episode))
    iterator = learner.steps(*support_of(episode))
    position = next(iterator)
    for _ in range(3):
        with torch.no_grad():
            position = next(iterator)
            assert not torch.is_grad_enabled()
    assert torch.equal(position.params.flat, expected.params.flat)
    # The caller started with autograd, so the positions have a graph.
    parameters = list(learner.meta_parameters())
    found, wanted = (
        torch.autograd.grad(a.params.flat.sin().sum(), parameters, materialize_grads=True)
        for a in (position, expected)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_an_iterator_made_without_autograd_records_no_graph(case):
    learner, episode = case(order="second")
    with torch.no_grad():
        iterator = learner.steps(*support_of(episode))
    assert not any(position.params.flat.requires_grad for position in iterator)
    assert torch.is_grad_enabled()


# Laziness


class Counting(SGD):
    """Records the steps that it is called for."""

    def __init__(self, layers):
        super().__init__(layers)
        self.seen: list[int] = []

    def rates(self, step, params, grads, state=()):
        self.seen.append(step)
        return super().rates(step, params, grads, state)


@pytest.fixture
def counting(make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    rule = Counting(init.layers)
    return Learner(model, init=init, rule=rule, loss=mse, num_steps=4), rule, episode


def test_steps_are_computed_on_demand(counting):
    learner, rule, episode = counting
    iterator = learner.steps(*support_of(episode))
    assert rule.seen == []
    next(iterator)
    assert rule.seen == []
    for expected in ([0], [0, 1]):
        next(iterator)
        assert rule.seen == expected
    assert len(list(iterator)) == 2
    assert rule.seen == [0, 1, 2, 3]


def test_a_caller_may_stop_at_a_position(counting):
    learner, rule, episode = counting
    for position in learner.steps(*support_of(episode), num_steps=1000):
        if len(position.rates) == 2:
            break
    assert rule.seen == [0, 1]


def test_without_steps_there_is_only_the_init(counting):
    learner, rule, episode = counting
    (only,) = learner.steps(*support_of(episode), num_steps=0)
    assert rule.seen == []
    assert only.rates == ()
    assert only.support_losses.shape == (0, 2)
    assert only.support_losses.dtype == torch.float64


def test_positions_are_independent(counting):
    learner, _, episode = counting
    first, *rest = learner.steps(*support_of(episode))
    copied = first.params.flat.detach().clone()
    with torch.no_grad():
        for position in rest:
            position.params.flat.zero_()
    assert torch.equal(first.params.flat, copied)


# Errors are raised by the call, not by the first `next`


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": -1}, "`num_steps` must be at least 0, got -1"),
        ({"order": "third"}, "`order` is 'third'"),
    ],
)
def test_invalid_arguments_are_rejected_at_once(counting, options, message):
    learner, _, episode = counting
    with pytest.raises(ConfigError, match=message):
        learner.steps(*support_of(episode), **options)


def test_an_episode_with_other_tasks_is_rejected_at_once(counting):
    learner, _, episode = counting
    wrong = dataclasses.replace(episode, support_y=episode.support_y[:1])
    with pytest.raises(ConfigError, match=r"must both begin with the dimensions \[task, example\]"):
        learner.steps(*support_of(wrong))
