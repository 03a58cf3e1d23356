"""Normalization parameters for every inner step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import Attenuated, FixedInit, LearnedInit, PerStepNorm
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.ops import mse
from alfa.rules import SGD


@pytest.fixture
def model(perturb) -> nn.Module:
    return perturb(nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)), 0.3)


def make_learner(init, num_steps: int = 3) -> Learner:
    rule = SGD(init.layers, learning_rate=0.1)
    return Learner(init.init.model, init=init, rule=rule, loss=mse, num_steps=num_steps).double()


def made(model: nn.Module, num_steps: int = 3) -> PerStepNorm:
    return PerStepNorm(LearnedInit(model), num_steps=num_steps).double()


def plain_query_loss(model, per_step: list[Tensor], episode, task: int) -> Tensor:
    """Return the query loss after three steps, by plain autograd."""
    (w1, b1), (w2, b2) = (layer.parameters() for layer in (model[0], model[3]))
    adapted = [w1, b1, w2, b2]

    def outputs(x: Tensor, step: int) -> Tensor:
        w1, b1, w2, b2 = adapted
        gamma = model[1].weight.detach() + per_step[2 * step]
        beta = model[1].bias.detach() + per_step[2 * step + 1]
        z = F.layer_norm(x @ w1.T + b1, (4,), gamma, beta)
        return z.tanh() @ w2.T + b2

    for step in range(3):
        loss = (outputs(episode.support_x[task], step) - episode.support_y[task]).square().mean()
        grads = torch.autograd.grad(loss, adapted, create_graph=True)
        adapted = [p - 0.1 * g for p, g in zip(adapted, grads, strict=True)]
    # Queries use the parameters of the last step.
    return (outputs(episode.query_x[task], 2) - episode.query_y[task]).square().mean()


def test_loss_and_gradients_are_those_of_plain_autograd(model, make_episode, randn) -> None:
    init, episode = made(model), make_episode(num_tasks=3)
    with torch.no_grad():
        for parameter in init.per_step:
            parameter.add_(0.3 * randn(4))
    outcome = make_learner(init)(episode)
    expected = torch.stack(
        [plain_query_loss(model, list(init.per_step), episode, task) for task in range(3)]
    )
    torch.testing.assert_close(outcome.query_losses, expected)
    parameters = list(init.meta_parameters())
    assert len(parameters) == 4 + 6
    found = torch.autograd.grad(outcome.query_losses.sum(), parameters)
    wanted = torch.autograd.grad(expected.sum(), parameters)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_with_equal_steps_it_is_the_plain_norm(model, make_episode) -> None:
    episode, plain = make_episode(), LearnedInit(model)
    rule = SGD(plain.layers, learning_rate=0.1)
    expected = Learner(model, init=plain, rule=rule, loss=mse, num_steps=3)(episode).query_losses
    init = made(model)
    found = make_learner(init)(episode).query_losses
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
    # The gradients of the steps add up to that of the plain parameter.
    whole = torch.autograd.grad(expected.sum(), list(model.parameters()))
    parts = torch.autograd.grad(found.sum(), list(init.per_step))
    torch.testing.assert_close(sum(parts[::2]), whole[2])
    torch.testing.assert_close(sum(parts[1::2]), whole[3])


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_each_step_has_its_own_parameters(model, make_episode, changed) -> None:
    init, episode = made(model), make_episode()
    learner = make_learner(init)
    support = episode.support_x, episode.support_y
    before = [adapted.params.flat for adapted in learner.steps(*support, order="none")]
    with torch.no_grad():
        init.per_step[2 * changed].add_(0.5)
    after = [adapted.params.flat for adapted in learner.steps(*support, order="none")]
    same = [torch.equal(one, other) for one, other in zip(before, after, strict=True)]
    assert same == [step <= changed for step in range(4)]


def test_further_steps_use_the_parameters_of_the_last(model, make_episode) -> None:
    init = made(model)
    with torch.no_grad():
        for number, parameter in enumerate(init.per_step):
            parameter.add_(0.1 * number)
    names = {"1.weight": 4, "1.bias": 5}
    for step in (2, 3, 9):
        shared = init.shared_at(step)
        assert list(shared) == ["1.weight", "1.bias"]
        for name, number in names.items():
            expected = model.get_parameter(name) + init.per_step[number]
            assert torch.equal(shared[name], expected)
    assert torch.equal(init.shared()["1.bias"], model[1].bias + init.per_step[1])


def test_the_replaced_parameters_are_not_trained(model, make_episode) -> None:
    init = made(model)
    trained = {id(p) for p in init.meta_parameters()}
    assert not trained & {id(p) for p in model[1].parameters()}
    assert {id(p) for p in (*model[0].parameters(), *model[3].parameters())} < trained
    make_learner(init)(make_episode()).query_losses.sum().backward()
    assert model[1].weight.grad is None
    # Weight decay applies to parameters with more than one dimension.
    assert all(p.ndim == 1 for p in init.per_step)


def test_parameters_loaded_later_count(model) -> None:
    init = made(model)
    with torch.no_grad():
        model[1].weight.fill_(3.0)
    assert init.shared_at(1)["1.weight"].tolist() == [3.0] * 4


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_it_composes_with_attenuation(model, make_episode, order) -> None:
    base = LearnedInit(model)
    if order == "inside":
        init = Attenuated(PerStepNorm(base, num_steps=3))
    else:
        init = PerStepNorm(Attenuated(base), num_steps=3)
    init = init.double()
    rule = SGD(init.layers, learning_rate=0.1)
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=3)
    parameters = list(init.meta_parameters())
    assert len(parameters) == 4 + 6 + 4
    grads = torch.autograd.grad(learner(make_episode()).query_losses.sum(), parameters)
    assert all(g.any() for g in grads)


def test_a_fixed_init_has_trained_norms_for_each_step() -> None:
    model = Conv4((1, 8, 8), 3, filters=4, num_blocks=2)
    init = PerStepNorm(FixedInit(model), num_steps=5)
    assert init.names == ["norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"]
    assert sum(p.numel() for p in init.meta_parameters()) == 5 * 4 * 4


def test_only_norms_outside_the_inner_loop_are_replaced(model) -> None:
    init = PerStepNorm(LearnedInit(model, adapt=["0.*", "1.weight"]), num_steps=2)
    assert init.names == ["1.bias"]
    assert {id(model[1].weight), id(model[3].bias)} < {id(p) for p in init.meta_parameters()}


def test_a_model_without_such_norms_is_an_error(model) -> None:
    message = "needs normalization layers whose trained parameters the inner loop does not adapt"
    with pytest.raises(ConfigError, match=message):
        PerStepNorm(LearnedInit(model, adapt="*"))
    with pytest.raises(ConfigError, match=message):
        PerStepNorm(LearnedInit(nn.Linear(2, 2), adapt="weight"))
    model[1].requires_grad_(False)
    with pytest.raises(ConfigError, match=message):
        PerStepNorm(LearnedInit(model))
    with pytest.raises(ConfigError, match="`num_steps` must be at least 1, got 0"):
        PerStepNorm(LearnedInit(model), num_steps=0)
