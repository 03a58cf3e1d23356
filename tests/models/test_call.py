"""Modules that register a submodule under two names, subclassed models, and nested models."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from alfa.data import Sinusoids
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.models import MLP, Conv4
from alfa.models._base import DEFAULT_MODE
from alfa.models._call import call
from alfa.ops import cross_entropy, mse
from alfa.rules import SGD
from alfa.types import Episode


class Twice(nn.Module):
    """`b` is another name of the layer `a`, and `c` shares its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a = nn.Linear(1, 6), nn.Linear(6, 6)
        self.b, self.c, self.head = self.a, nn.Linear(6, 6), nn.Linear(6, 1)
        self.c.weight = self.a.weight
        self.register_buffer("shift", torch.full((6,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.c(self.b(self.a(self.first(x).tanh()).tanh()).tanh())
        return self.head(x.tanh() + self.shift)


@pytest.fixture
def twice(perturb) -> nn.Module:
    return perturb(Twice())


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def test_every_tensor_is_replaced_and_the_module_is_unchanged(twice, randn) -> None:
    x, before = randn(5, 1), copy.deepcopy(twice)
    other = {name: tensor + randn(*tensor.shape) for name, tensor in tensors_of(twice).items()}
    expected = copy.deepcopy(twice)
    with torch.no_grad():
        for name, tensor in tensors_of(expected).items():
            tensor.copy_(other[name])
    torch.testing.assert_close(call(twice, other, x), expected(x), rtol=0, atol=1e-14)
    assert twice.a is twice.b
    assert isinstance(twice.a.weight, nn.Parameter)
    assert twice.c.weight is twice.a.weight
    torch.testing.assert_close(twice(x), before(x), rtol=0, atol=0)


@pytest.mark.parametrize("adapt", [None, ["head.*"]])
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_a_module_with_two_names_is_adapted_and_trained(twice, adapt, over_tasks) -> None:
    init = LearnedInit(twice, adapt=adapt)
    learner = Learner(
        twice, init=init, rule=SGD(init.layers), loss=mse, over_tasks=over_tasks, num_steps=2
    )
    parameters = list(learner.meta_parameters())
    episode = Sinusoids(num_query=4).episode(0, num_tasks=2).to("cpu", torch.float64)
    learner(episode, order="none")
    loss = learner(episode).query_losses.mean()
    gradients = torch.autograd.grad(loss, parameters)
    assert all(bool(gradient.any()) for gradient in gradients)
    assert {id(p) for p in twice.parameters()} == {id(p) for p in parameters}


class Wave(MLP):
    """A perceptron that transforms its input."""

    def stacked(self, params, x, mode=DEFAULT_MODE):
        return super().stacked(params, x.sin(), mode)


class Dark(Conv4):
    def stacked(self, params, x, mode=DEFAULT_MODE):
        return super().stacked(params, x / 3, mode)


@pytest.mark.parametrize("kind", ["wave", "dark"])
def test_adaptation_follows_the_overridden_forward_pass(
    kind: str, perturb, randn, without_numba
) -> None:
    # The kernels have no effect on the choice of the pass, and take seconds to compile.
    if kind == "wave":
        model, loss = perturb(Wave((1,), 1, hidden=[5])), mse
        episode = Sinusoids(num_query=4).episode(0, num_tasks=2).to("cpu", torch.float64)
    else:
        model, loss = perturb(Dark((1, 16, 16), 2, filters=3)), cross_entropy
        y = torch.tensor([[0, 1, 0, 1]] * 2)
        episode = Episode(randn(2, 4, 1, 16, 16), y, randn(2, 4, 1, 16, 16), y)
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers, learning_rate=0.1), loss=loss)
    found = learner.adapt(episode.support_x, episode.support_y, num_steps=1)
    # Compare with autograd, one task at a time.
    for task in range(2):
        own = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
        stacked = {name: p.unsqueeze(0) for name, p in own.items()}
        outputs = model.stacked(stacked, episode.support_x[task : task + 1])
        of_task = loss(outputs, episode.support_y[task : task + 1])[0]
        torch.testing.assert_close(found.support_losses[0, task], of_task, rtol=1e-10, atol=0)
        names = list(init.layers)
        gradients = torch.autograd.grad(
            of_task, [own[n] for n in names], allow_unused=True, materialize_grads=True
        )
        for name, gradient in zip(names, gradients, strict=True):
            expected = own[name] - 0.1 * gradient
            torch.testing.assert_close(found.params[name][task], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("over_tasks", ["loop", "auto"])
def test_a_model_can_be_part_of_a_user_defined_module(
    perturb, randn, without_numba, over_tasks
) -> None:
    model = perturb(nn.Sequential(Conv4((1, 16, 16), 8, filters=4), nn.Linear(8, 2)))
    init = LearnedInit(model)
    learner = Learner(
        model, init=init, rule=SGD(init.layers), loss=cross_entropy, over_tasks=over_tasks
    )
    x, y = randn(2, 6, 1, 16, 16), torch.tensor([[0, 1] * 3] * 2)
    assert torch.equal(learner.adapt(x, y, num_steps=0).predict(x)[0], model(x[0]))
    loss = learner(Episode(x, y, x, y)).query_losses.mean()
    gradients = torch.autograd.grad(loss, list(learner.meta_parameters()), materialize_grads=True)
    assert sum(bool(gradient.any()) for gradient in gradients) > 10
