"""Inductive batch norm of modules with torch's layers equals a computation by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from alfa.data import Tasks
from alfa.errors import ConfigError
from alfa.evaluation import evaluate
from alfa.inits import LearnedInit, PrototypeHead
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.ops import cross_entropy
from alfa.rules import SGD
from alfa.types import Episode

NUM_SUPPORT, RATE = 6, 0.3


class Net(nn.Module):
    """Batch norm of maps, of vectors without gamma and beta, and with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)
        self.body = nn.Linear(3 * 3 * 4, 5)
        self.second = nn.BatchNorm1d(5, affine=False, track_running_stats=False)
        self.third = nn.BatchNorm1d(5, eps=0.1).eval()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.conv(x)).tanh().flatten(1)
        return self.head(self.third(self.second(input=self.body(x)).tanh()))


class ByHand(nn.Module):
    """The same module with the statistics of the first `num_norm` examples."""

    def __init__(self, net: Net, num_norm: int) -> None:
        super().__init__()
        for name, module in net.named_children():
            self.add_module(name, module)
        self.num_norm = num_norm

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x)
        support = z[: self.num_norm].transpose(0, 1).flatten(1)
        mean, var = support.mean(1), support.var(1, correction=0)
        z = (z - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
        x = (self.first.weight[:, None, None] * z + self.first.bias[:, None, None]).tanh()
        z = self.body(x.flatten(1))
        mean, var = z[: self.num_norm].mean(0), z[: self.num_norm].var(0, correction=0)
        z = ((z - mean) / (var + 1e-5).sqrt()).tanh()
        own = self.third
        z = F.batch_norm(z, own.running_mean, own.running_var, own.weight, own.bias, eps=0.1)
        return self.head(z)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    net = Net().double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        net.third.running_mean.uniform_(-1, 1)
    return net


@pytest.fixture
def episode() -> Episode:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 11, 1, 5, 6, generator=generator, dtype=torch.float64)
    y = torch.arange(11).remainder(3).expand(2, -1)
    return Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


def learner_of(model: nn.Module, init=LearnedInit, **options) -> Learner:
    start = init(model)
    rule = SGD(start.layers, learning_rate=RATE)
    options = {"loss": cross_entropy, "num_steps": 2, "batch_norm": "inductive", **options}
    return Learner(model, init=start, rule=rule, **options)


def by_hand(net: Net, episode: Episode) -> tuple[Tensor, Tensor]:
    """Return the mean query loss after two second-order steps, and the query outputs."""
    adapted = [n for n, _ in net.named_parameters() if "first" not in n and "third" not in n]
    model, losses, outputs = ByHand(net, NUM_SUPPORT), [], []
    for task in range(2):
        params = dict(net.named_parameters())
        for _ in range(2):
            own = [params[name] for name in adapted]
            found = functional_call(model, params, (episode.support_x[task],))
            loss = F.cross_entropy(found, episode.support_y[task])
            grads = torch.autograd.grad(loss, own, create_graph=True)
            moved = zip(adapted, own, grads, strict=True)
            params |= {name: value - RATE * grad for name, value, grad in moved}
        x = torch.cat([episode.support_x[task], episode.query_x[task]])
        outputs.append(functional_call(model, params, (x,))[NUM_SUPPORT:])
        losses.append(F.cross_entropy(outputs[-1], episode.query_y[task]))
    return torch.stack(losses).mean(), torch.stack(outputs)


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_meta_gradients_equal_those_by_hand(net, episode, over_tasks, memory) -> None:
    outcome = learner_of(net, over_tasks=over_tasks, memory=memory)(episode)
    loss, outputs = by_hand(net, episode)
    torch.testing.assert_close(outcome.outputs, outputs, rtol=1e-9, atol=1e-9)
    parameters = list(net.parameters())
    ours = torch.autograd.grad(outcome.query_losses.mean(), parameters)
    theirs = torch.autograd.grad(loss, parameters)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("init", [LearnedInit, PrototypeHead])
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_a_prediction_does_not_depend_on_other_queries(net, episode, over_tasks, init) -> None:
    for batch_norm, is_independent in (("inductive", True), ("transductive", False)):
        learner = learner_of(net, init, over_tasks=over_tasks, batch_norm=batch_norm)
        adapted = learner.adapt(episode.support_x, episode.support_y)
        together = adapted.predict(episode.query_x)[:, :2]
        alone = adapted.predict(episode.query_x[:, :2])
        assert torch.allclose(together, alone, rtol=0, atol=1e-12) is is_independent


def test_a_frozen_model_predicts_the_same(net, episode) -> None:
    adapted = learner_of(net).adapt(episode.support_x, episode.support_y)
    frozen = adapted.frozen(episode.support_x[1], task=1)
    alone = torch.cat([frozen(query) for query in episode.query_x[1].split(1)])
    expected = adapted.predict(episode.query_x)[1]
    torch.testing.assert_close(alone, expected, rtol=1e-9, atol=1e-9)


def test_the_module_keeps_its_statistics_and_hooks(net, episode) -> None:
    before = copy.deepcopy(net.state_dict())
    learner_of(net)(episode)
    assert all(map(torch.equal, net.state_dict().values(), before.values()))
    assert not any(module._forward_hooks for module in net.modules())


class Images(Tasks):
    input_shape, num_outputs, loss = (1, 5, 6), 3, "cross_entropy"

    def episode(self, first, *, num_tasks, split="train", seed=0):
        generator = torch.Generator().manual_seed(first)
        x = torch.randn(num_tasks, 12, 1, 5, 6, generator=generator, dtype=torch.float64)
        y = torch.arange(3).repeat(4).expand(num_tasks, -1)
        return Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


def test_an_evaluation_names_it(net) -> None:
    assert evaluate(learner_of(net), Images(), num_tasks=2).batch_norm == "inductive"


class Patches(nn.Module):
    """Normalizes the rows of an image as examples."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(30, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x.flatten(0, 2)).view(len(x), 30))


def test_rows_other_than_examples_are_rejected(episode) -> None:
    learner = learner_of(Patches().double())
    adapted = learner.adapt(episode.support_x, episode.support_y)
    with pytest.raises(ConfigError, match=r"the batch norm norm got 55 rows for 11 examples"):
        adapted.predict(episode.query_x)


def test_a_model_of_alfa_inside_of_a_module_is_rejected() -> None:
    model = nn.Sequential(Conv4((1, 4, 4), 3, filters=2, num_blocks=1), nn.Linear(3, 3)).double()
    x = torch.randn(1, 6, 1, 4, 4, dtype=torch.float64)
    adapted = learner_of(model).adapt(x, torch.arange(6).remainder(3)[None])
    with pytest.raises(ConfigError, match="does not reach the model Conv4 inside of Sequential"):
        adapted.predict(x)
