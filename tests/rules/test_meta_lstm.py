"""The Meta-Learner LSTM against a loop over single weights."""

import math

import pytest
import torch

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner, adapt
from alfa.ops import mse
from alfa.rules import MetaLSTM
from alfa.rules._meta_lstm import preprocess
from alfa.types import Params

LAYERS = {"w": torch.Size([2, 2]), "b": torch.Size([2])}


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def two_inputs(value):
    """Return the preprocessed pair of one number."""
    if abs(value) >= math.exp(-10):
        return [math.log(abs(value)) / 10, math.copysign(1, value)]
    return [-1, math.exp(10) * value]


class PlainWeight:
    """One weight with its cell state, in floats."""

    def __init__(self, rule, theta):
        self.own = {name: p.tolist() for name, p in rule.named_parameters()}
        self.num_units = len(self.own["W_f"]) - 2
        self.h, self.c = [0.0] * self.num_units, [0.0] * self.num_units
        self.theta, self.f, self.i = theta, 0.0, 0.0

    def step(self, loss, g):
        self.read([*two_inputs(loss), *two_inputs(g)])
        self.f = self.gate("f", self.f)
        self.i = self.gate("i", self.i)
        self.theta = sigmoid(self.f) * self.theta - sigmoid(self.i) * g

    def gate(self, name, previous):
        inputs = [*self.h, self.theta, previous]
        total = sum(w * x for w, x in zip(self.own[f"W_{name}"], inputs, strict=True))
        return total + self.own[f"b_{name}"]

    def read(self, x):
        """Run the LSTM, whose gates are input, forget, cell, and output."""
        own, size = self.own, self.num_units
        values = []
        for row in range(4 * size):
            total = own["lstm.bias_ih"][row] + own["lstm.bias_hh"][row]
            total += sum(w * v for w, v in zip(own["lstm.weight_ih"][row], x, strict=True))
            total += sum(w * v for w, v in zip(own["lstm.weight_hh"][row], self.h, strict=True))
            values.append(total)
        ins, forgets, cells, outs = (values[k * size : (k + 1) * size] for k in range(4))
        self.c = [
            sigmoid(forget) * c + sigmoid(into) * math.tanh(cell)
            for forget, c, into, cell in zip(forgets, self.c, ins, cells, strict=True)
        ]
        self.h = [sigmoid(out) * math.tanh(c) for out, c in zip(outs, self.c, strict=True)]


def test_each_weight_is_updated_by_itself(perturb, randn):
    rule = perturb(MetaLSTM(LAYERS, num_units=3), 0.5)
    theta = Params.of({name: randn(2, *shape) for name, shape in LAYERS.items()})
    plain = [[PlainWeight(rule, value) for value in row] for row in theta.flat.tolist()]
    state = ()
    for step in range(4):
        # Gradients and losses of all scales, on both sides of exp(-10)
        scale = 10.0 ** -(2 * step)
        g, losses = theta.like(randn(*theta.flat.shape) * scale), randn(2).abs() * scale
        rates = rule(step, theta, g, state, losses=losses)
        state = rates.state
        theta = theta.like(rates.beta.flat * theta.flat - rates.alpha.flat * g.flat)
        for task in range(2):
            for weight, value in zip(plain[task], g.flat[task].tolist(), strict=True):
                weight.step(float(losses[task]), value)
    expected = torch.tensor([[w.theta for w in row] for row in plain], dtype=torch.float64)
    torch.testing.assert_close(theta.flat.detach(), expected, rtol=1e-11, atol=1e-12)


def test_the_inner_loop_passes_the_losses_and_gradients(make_mlp, make_episode, perturb):
    model, episode = make_mlp(hidden=()), make_episode(num_tasks=2)
    init = LearnedInit(model)
    rule = perturb(MetaLSTM(init.layers, num_units=2), 0.3)
    x, y = episode.support_x, episode.support_y
    adapted = adapt(model, x, y, init=init, rule=rule, loss=mse, num_steps=3, order="first")
    for task in range(2):
        start = torch.cat([p.detach().flatten() for p in model.parameters()])
        weights = [PlainWeight(rule, value) for value in start.tolist()]
        for _ in range(3):
            theta = torch.tensor([w.theta for w in weights], dtype=x.dtype, requires_grad=True)
            outputs = x[task] @ theta[:4].view(2, 2).T + theta[4:]
            loss = (outputs - y[task]).square().mean()
            (grads,) = torch.autograd.grad(loss, theta)
            for weight, g in zip(weights, grads.tolist(), strict=True):
                weight.step(loss.item(), g)
        expected = torch.tensor([w.theta for w in weights], dtype=x.dtype)
        torch.testing.assert_close(adapted.params.flat[task].detach(), expected)


def plain_query_loss(model, rule, episode, task, *, num_steps):
    """Compute one task's query loss of a linear model in torch, with constant gradients."""
    own = dict(rule.named_parameters())
    theta = torch.cat([p.flatten() for p in model.parameters()])
    h = c = theta.new_zeros(len(theta), rule.lstm.hidden_size)
    f = i = torch.zeros_like(theta)
    for _ in range(num_steps):
        at = theta.detach().requires_grad_()
        outputs = episode.support_x[task] @ at[:4].view(2, 2).T + at[4:]
        loss = (outputs - episode.support_y[task]).square().mean()
        (g,) = torch.autograd.grad(loss, at)
        rows = [[*two_inputs(loss.item()), *two_inputs(v)] for v in g.tolist()]
        x = torch.tensor(rows, dtype=theta.dtype)
        values = x @ own["lstm.weight_ih"].T + own["lstm.bias_ih"]
        values = values + h @ own["lstm.weight_hh"].T + own["lstm.bias_hh"]
        into, forget, cell, out = values.chunk(4, dim=1)
        c = forget.sigmoid() * c + into.sigmoid() * cell.tanh()
        h = out.sigmoid() * c.tanh()
        f, i = (
            h @ own[f"W_{name}"][:-2]
            + own[f"W_{name}"][-2] * theta
            + own[f"W_{name}"][-1] * gate
            + own[f"b_{name}"]
            for name, gate in (("f", f), ("i", i))
        )
        theta = f.sigmoid() * theta - i.sigmoid() * g
    outputs = episode.query_x[task] @ theta[:4].view(2, 2).T + theta[4:]
    return (outputs - episode.query_y[task]).square().mean()


def test_the_outer_gradient_takes_gradients_and_losses_as_constants(
    make_mlp, make_episode, perturb, meta_gradients
):
    model, episode = make_mlp(hidden=()), make_episode(num_tasks=2)
    init = LearnedInit(model)
    rule = perturb(MetaLSTM(init.layers, num_units=3), 0.3)
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=4, order="first")
    loss, grads = meta_gradients(learner, episode)
    losses = [plain_query_loss(model, rule, episode, task, num_steps=4) for task in range(2)]
    twin = torch.stack(losses).mean()
    torch.testing.assert_close(loss, twin.detach(), rtol=0, atol=1e-12)
    wanted = torch.autograd.grad(twin, list(learner.meta_parameters()))
    for one, other in zip(grads, wanted, strict=True):
        assert bool(other.any())
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_it_starts_as_gradient_descent_with_a_little_decay(randn):
    rule = MetaLSTM(LAYERS).double()
    theta = Params.of({name: randn(3, *shape) for name, shape in LAYERS.items()})
    with torch.no_grad():
        rates = rule(0, theta, theta, losses=torch.ones(3).double())
    # The logits are between 4 and 5, or -5 and -4.
    assert 0.98 < float(rates.beta.flat.min()) <= float(rates.beta.flat.max()) < 0.995
    assert 0.005 < float(rates.alpha.flat.min()) <= float(rates.alpha.flat.max()) < 0.02


def test_the_parameters_do_not_depend_on_the_layers():
    one, other = MetaLSTM(LAYERS), MetaLSTM({"w": torch.Size([100, 10])})
    assert [p.shape for p in one.parameters()] == [p.shape for p in other.parameters()]


def test_weights_are_drawn_from_the_given_generator():
    def drawn(seed):
        rule = MetaLSTM(LAYERS, generator=torch.Generator().manual_seed(seed))
        return torch.cat([p.detach().flatten() for p in rule.parameters()])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_meta_gradients_pass_gradcheck(make_mlp, make_episode, perturb):
    model, episode = make_mlp(num_out=1, hidden=()), make_episode(num_out=1)
    init = LearnedInit(model)
    rule = perturb(MetaLSTM(init.layers, num_units=2), 0.3)
    # In second order, the outer gradient is the derivative of the whole computation, except for
    # the losses, which are constants: zero their inputs.
    with torch.no_grad():
        rule.lstm.weight_ih[:, :2] = 0
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=3)
    parameters = tuple(learner.meta_parameters())
    assert torch.autograd.gradcheck(lambda *_: learner(episode).query_losses, parameters)


def test_preprocessing_of_zero_has_a_finite_gradient():
    values = torch.tensor([0.0, 1e-6, -1e-6, 1.0, -100.0]).double().requires_grad_()
    pairs = preprocess(values)
    expected = [two_inputs(value) for value in values.tolist()]
    torch.testing.assert_close(pairs, torch.tensor(expected).double())
    (grad,) = torch.autograd.grad(pairs.sum(), values)
    assert bool(grad.isfinite().all())


def test_rates_without_losses_are_an_error(randn):
    theta = Params.of({name: randn(1, *shape) for name, shape in LAYERS.items()})
    with pytest.raises(ConfigError, match="MetaLSTM needs the support losses; pass `losses`"):
        MetaLSTM(LAYERS).double().rates(0, theta, theta)


def test_a_number_of_units_must_be_positive():
    with pytest.raises(ConfigError, match="`num_units` must be at least 1, got 0"):
        MetaLSTM(LAYERS, num_units=0)
