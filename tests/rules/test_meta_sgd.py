"""Meta-SGD against closed forms."""

import pytest
import torch

from alfa.errors import ConfigError
from alfa.inits import LearnedInit, ZeroHead
from alfa.learner import Learner, adapt
from alfa.ops import cross_entropy, mse
from alfa.rules import MetaSGD
from alfa.types import Episode


@pytest.fixture
def regression(randn):
    """Return a linear model, its init, a rule with rates of both signs, and linear tasks."""
    model = torch.nn.Linear(3, 1).double()
    init = LearnedInit(model)
    rule = MetaSGD(init.layers).double()
    with torch.no_grad():
        rule.alpha.copy_(torch.tensor([0.3, -0.2, 0.1, 0.05]))
    return model, init, rule, Episode(*(randn(4, 6, n) for n in (3, 1, 3, 1)))


def closed_form(model, alpha, episode, *, num_steps):
    """Return the weights [task, 4] after steps on |Xw - y|^2 / n.

    The gradient is Hw - b with H = 2 X'X / n and b = 2 X'y / n.
    """
    rows = []
    for x, y in zip(episode.support_x, episode.support_y, strict=True):
        big = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        hessian, linear = 2 * big.T @ big / len(x), 2 * big.T @ y[:, 0] / len(x)
        w = torch.cat([model.weight[0], model.bias])
        # w' = A w + alpha b with A = I - diag(alpha) H, so w_S = A^S w + (sum of A^s) alpha b
        factor = torch.eye(4, dtype=w.dtype) - torch.diag(alpha) @ hessian
        powers = [torch.linalg.matrix_power(factor, s) for s in range(num_steps + 1)]
        rows.append(powers[-1] @ w + sum(powers[:-1]) @ (alpha * linear))
    return torch.stack(rows)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_linear_regression_has_the_closed_form(regression, num_steps):
    model, init, rule, episode = regression
    adapted = adapt(
        model,
        episode.support_x,
        episode.support_y,
        init=init,
        rule=rule,
        loss=mse,
        num_steps=num_steps,
    )
    expected = closed_form(model, rule.alpha, episode, num_steps=num_steps)
    torch.testing.assert_close(adapted.params.flat, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_the_outer_gradients_of_init_and_rates_have_the_closed_form(regression, memory):
    model, init, rule, episode = regression
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=2, memory=memory)
    w = closed_form(model, rule.alpha, episode, num_steps=2)
    outputs = (episode.query_x * w[:, None, :3]).sum(2) + w[:, 3:]
    expected_loss = (outputs - episode.query_y[..., 0]).square().mean()
    loss = learner(episode).query_losses.mean()
    torch.testing.assert_close(loss, expected_loss, rtol=0, atol=1e-12)
    leaves = [model.weight, model.bias, rule.alpha]
    actual = torch.autograd.grad(loss, leaves)
    wanted = torch.autograd.grad(expected_loss, leaves)
    for one, other in zip(actual, wanted, strict=True):
        assert other.abs().min() > 0
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_the_outer_loop_can_make_a_rate_negative():
    # For w^2 and the query loss -w^2, gradient ascent is optimal.
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.constant_(model.weight, 1.0)
    init = LearnedInit(model)
    rule = MetaSGD(init.layers, start=0.01).double()
    x, y = torch.ones(1, 1, 1).double(), torch.zeros(1, 1, 1).double()
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=1)
    optimizer = torch.optim.SGD([rule.alpha], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        (-learner(Episode(x, y, x, y)).query_losses.sum()).backward()
        optimizer.step()
    assert rule.alpha.item() < 0


def test_no_grad_records_no_graph(regression):
    model, init, rule, episode = regression
    with torch.no_grad():
        adapted = adapt(model, episode.support_x, episode.support_y, init=init, rule=rule, loss=mse)
    assert not any(rates.alpha.flat.requires_grad for rates in adapted.rates)


def test_a_rate_of_each_weight_needs_the_shapes_of_the_model(randn):
    model = torch.nn.Sequential(torch.nn.Linear(3, 5)).double()
    init = ZeroHead(model)
    rule = MetaSGD(init.layers).double()
    x, y = randn(1, 4, 3), torch.tensor([[0, 1, 0, 1]])
    with pytest.raises(
        ConfigError, match=r"MetaSGD has values .* other shapes of 0.weight, 0.bias;"
    ):
        adapt(model, x, y, init=init, rule=rule, loss=cross_entropy)
    adapt(model, x, torch.tensor([[0, 1, 2, 4]]), init=init, rule=rule, loss=cross_entropy)


def test_a_start_must_be_positive():
    with pytest.raises(ConfigError, match=r"`start` must be greater than 0, got -0.1\."):
        MetaSGD({"w": torch.Size([2])}, start=-0.1)
