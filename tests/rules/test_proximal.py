"""Gradient descent with a proximal term, against plain autograd."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.ops import mse
from alfa.rules import SGD, Proximal


def adapted_weights(model, episode, rule, **options):
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=rule(init.layers), loss=mse, num_steps=4, **options)
    return learner.adapt(episode.support_x, episode.support_y).params


def test_steps_and_outer_gradient_are_those_of_the_regularized_loss(make_episode, perturb) -> None:
    model, episode = perturb(nn.Linear(2, 2)), make_episode(num_tasks=3)
    found = adapted_weights(
        model, episode, lambda layers: Proximal(layers, learning_rate=0.1, strength=0.8)
    )
    theta = list(model.parameters())
    for task in range(3):
        phi = theta
        for _ in range(4):
            loss = F.mse_loss(episode.support_x[task] @ phi[0].T + phi[1], episode.support_y[task])
            loss = loss + 0.4 * sum((p - t).square().sum() for p, t in zip(phi, theta, strict=True))
            grads = torch.autograd.grad(loss, phi, create_graph=True)
            phi = [p - 0.1 * g for p, g in zip(phi, grads, strict=True)]
        torch.testing.assert_close(found["weight"][task], phi[0])
        torch.testing.assert_close(found["bias"][task], phi[1])
        expected = torch.autograd.grad(phi[0].square().sum() + phi[1].sum(), theta)
        actual = torch.autograd.grad(
            found["weight"][task].square().sum() + found["bias"][task].sum(),
            theta,
            retain_graph=True,
        )
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_without_strength_it_is_gradient_descent(make_mlp, make_episode) -> None:
    model, episode = make_mlp(), make_episode()
    found = adapted_weights(model, episode, lambda layers: Proximal(layers, strength=0.0))
    assert torch.equal(found.flat, adapted_weights(model, episode, SGD).flat)


@pytest.mark.parametrize("options", [{"learning_rate": 0.0}, {"strength": -1.0}])
def test_invalid_options_are_errors(options) -> None:
    with pytest.raises(ConfigError, match=r"`learning_rate` must be greater than 0 and `strength`"):
        Proximal({"w": torch.Size([2])}, **options)
