"""Adam in the inner loop, against torch's."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.ops import mse
from alfa.rules import InnerAdam
from alfa.types import Layers, Params


@pytest.mark.parametrize(
    "options",
    [{}, {"learning_rate": 0.05, "beta1": 0.0}, {"beta1": 0.5, "beta2": 0.9, "eps": 0.1}],
)
def test_every_task_has_the_steps_of_torch(make_episode, perturb, options) -> None:
    model = perturb(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)))
    episode = make_episode(num_tasks=3)
    init = LearnedInit(model)
    learner = Learner(
        model, init=init, rule=InnerAdam(init.layers, **options), loss=mse, num_steps=7
    )
    adapted = learner.adapt(episode.support_x, episode.support_y)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    settings = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **options}
    for task in range(3):
        model.load_state_dict(start)
        betas = settings["beta1"], settings["beta2"]
        optimizer = torch.optim.Adam(
            model.parameters(), lr=settings["learning_rate"], betas=betas, eps=settings["eps"]
        )
        for _ in range(7):
            optimizer.zero_grad()
            F.mse_loss(model(episode.support_x[task]), episode.support_y[task]).backward()
            optimizer.step()
        for name, p in model.named_parameters():
            torch.testing.assert_close(adapted.params[name][task], p.detach())


def test_a_weight_without_gradient_has_finite_derivatives() -> None:
    layers = Layers({"w": torch.Size([2])})
    g = torch.tensor([[0.0, 1e-30]], requires_grad=True)
    rule = InnerAdam(layers, beta1=0.0)
    first = rule.rates(0, Params(g, layers), Params(g, layers))
    second = rule.rates(1, Params(g, layers), Params(g, layers), first.state)
    assert second.direction is not None
    (found,) = torch.autograd.grad(second.direction.flat.sum(), g)
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` and `eps` must be greater than 0, got 0.0"),
        ({"eps": -1.0}, "`learning_rate` and `eps` must be greater than 0, got 0.001 and -1.0"),
        ({"beta1": 1.0}, "`beta1` and `beta2` must be at least 0 and below 1, got 1.0 and 0.999"),
        ({"beta2": -0.1}, "`beta1` and `beta2` must be at least 0 and below 1, got 0.9 and -0.1"),
    ],
)
def test_invalid_options_are_errors(options, fault) -> None:
    with pytest.raises(ConfigError, match=fault):
        InnerAdam({"w": torch.Size([2])}, **options)
