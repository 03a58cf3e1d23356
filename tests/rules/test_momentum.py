"""Momentum against torch.optim.SGD."""

import pytest
import torch
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner, adapt
from alfa.ops import mse
from alfa.rules import Momentum

VARIANTS = [
    {"momentum": 0.9},
    {"momentum": 0.5, "dampening": 0.9},
    {"momentum": 0.7, "nesterov": True},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_momentum_equals_torch(make_mlp, make_episode, backend, options):
    model, episode = make_mlp(), make_episode(num_tasks=3)
    init = LearnedInit(model)
    rule = Momentum(init.layers, learning_rate=0.1, **options)
    adapted = adapt(model, episode.support_x, episode.support_y, init=init, rule=rule, loss=mse)
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for task in range(3):
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **options)
        for step in range(5):
            optimizer.zero_grad()
            loss = F.mse_loss(model(episode.support_x[task]), episode.support_y[task])
            torch.testing.assert_close(adapted.support_losses[step, task], loss.detach())
            loss.backward()
            optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                adapted.params[name][task].detach(), parameter.detach(), rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("order", ["second", "first"])
def test_the_outer_gradient_flows_through_the_momentum(
    make_mlp, make_episode, meta_gradients, order, memory, options
):
    model, episode = make_mlp(hidden=()), make_episode(num_tasks=2)
    init = LearnedInit(model)
    rule = Momentum(init.layers, learning_rate=0.1, **options)
    learner = Learner(
        model, init=init, rule=rule, loss=mse, num_steps=4, order=order, memory=memory
    )
    loss, grads = meta_gradients(learner, episode)
    twin = torch.stack(
        [plain_query_loss(model, episode, task, order, **options) for task in range(2)]
    ).mean()
    torch.testing.assert_close(loss, twin.detach(), rtol=0, atol=1e-12)
    for grad, wanted in zip(grads, torch.autograd.grad(twin, [*model.parameters()]), strict=True):
        torch.testing.assert_close(grad, wanted, rtol=0, atol=1e-12)


def plain_query_loss(model, episode, task, order, *, momentum, dampening=0.0, nesterov=False):
    """Compute one task's query loss of a linear model after four steps, in plain torch."""
    theta, velocity = list(model.parameters()), None
    for _ in range(4):
        at = theta if order == "second" else [w.detach().requires_grad_() for w in theta]
        loss = F.mse_loss(F.linear(episode.support_x[task], *at), episode.support_y[task])
        grads = torch.autograd.grad(loss, at, create_graph=order == "second")
        if velocity is None:
            velocity = grads
        else:
            pairs = zip(velocity, grads, strict=True)
            velocity = [momentum * v + (1 - dampening) * g for v, g in pairs]
        ahead = [g + momentum * v for g, v in zip(grads, velocity, strict=True)]
        used = ahead if nesterov else velocity
        theta = [w - 0.1 * d for w, d in zip(theta, used, strict=True)]
    return F.mse_loss(F.linear(episode.query_x[task], *theta), episode.query_y[task])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0}, "`learning_rate` must be greater than 0, got 0"),
        ({"momentum": 0}, "`momentum` must be greater than 0 and below 1, got 0; .* 'sgd'"),
        ({"momentum": 1.0}, "`momentum` must be greater than 0 and below 1, got 1.0"),
        ({"dampening": 1}, "`dampening` must be at least 0 and below 1, got 1"),
        ({"dampening": 0.5, "nesterov": True}, "`nesterov` needs a `dampening` of 0, got 0.5"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        Momentum({"w": torch.Size([2])}, **options)
