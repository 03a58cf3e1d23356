"""The distance to the adapted weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.objectives import Reptile
from alfa.ops import mse
from alfa.rules import SGD, InnerAdam, LearnedRates


@pytest.fixture
def model(perturb) -> nn.Module:
    layers = nn.Linear(2, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)
    return perturb(nn.Sequential(*layers))


def reptile_learner(model: nn.Module, rule=InnerAdam, **options) -> Learner:
    init = LearnedInit(model, adapt="*")
    options = {"loss": mse, "num_steps": 6, **options}
    return Learner(model, init=init, rule=rule(init.layers), **options).double()


class Seen:
    """A loss that records the numbers of the examples of every step, which are their targets."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []

    def __call__(self, outputs, targets):
        self.steps.append(targets[0, :, 0].int().tolist())
        return mse(outputs, targets)


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("order", ["second", "first", "none"])
def test_an_outer_step_is_the_update_of_plain_torch(model, make_episode, batch_size, order) -> None:
    def rule(layers):
        return InnerAdam(layers, learning_rate=0.1, beta1=0.0)

    episode, epsilon = make_episode(num_tasks=3), 0.25
    x = torch.cat([episode.support_x, episode.query_x], 1)
    y = torch.cat([episode.support_y, episode.query_y], 1)
    # The examples of each step, which the permutations decide
    seen = Seen()
    numbers = torch.arange(9.0).double().view(1, 9, 1).expand(3, 9, 2)
    numbered = reptile_learner(model, rule, loss=seen, batch_size=batch_size)
    numbered.adapt(x, numbers)

    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for task in range(3):
        phi = copy.deepcopy(model)
        optimizer = torch.optim.Adam(phi.parameters(), lr=0.1, betas=(0.0, 0.999))
        for chosen in seen.steps:
            optimizer.zero_grad()
            F.mse_loss(phi(x[task, chosen]), y[task, chosen]).backward()
            optimizer.step()
        for name, p in phi.named_parameters():
            expected[name] += p.detach() / 3
    theta = {name: p.detach().clone() for name, p in model.named_parameters()}

    learner = reptile_learner(model, rule, batch_size=batch_size, order=order)
    outer = torch.optim.SGD(learner.meta_parameters(), lr=epsilon)
    Reptile()(learner, episode, progress=0.0).losses.mean().backward()
    outer.step()
    for name, p in model.named_parameters():
        wanted = theta[name] + epsilon * (expected[name] - theta[name])
        torch.testing.assert_close(p.detach(), wanted)


def test_the_query_loss_is_that_of_the_adapted_weights_without_a_graph(model, make_episode) -> None:
    learner, episode = reptile_learner(model), make_episode()
    outcome = Reptile()(learner, episode, progress=0.0)
    assert not outcome.query_losses.requires_grad
    assert torch.equal(outcome.query_losses, mse(outcome.outputs, episode.query_y))
    assert outcome.adapted.support_losses.shape == (6, 2)


def test_parameters_that_it_cannot_train_are_errors(model, make_episode) -> None:
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
    with pytest.raises(ConfigError, match=r"does not adapt 1\.weight, 1\.bias; set `adapt`"):
        Reptile()(learner, make_episode(), progress=0.0)
    with pytest.raises(ConfigError, match=r"parameters of the rule LearnedRates; use a rule"):
        Reptile()(reptile_learner(model, LearnedRates), make_episode(), progress=0.0)


def test_frozen_parameters_may_stay(model, make_episode) -> None:
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
    Reptile()(learner, make_episode(), progress=0.0).losses.sum().backward()
    assert model[0].weight.grad.any()
