"""TADAM's init: normalization layers that depend on the task, and scaled prototypes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import ConditionedPrototypes
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.ops import cross_entropy
from alfa.rules import SGD


@pytest.fixture
def learner(perturb, rng):
    model = perturb(Conv4((1, 8, 8), 3, filters=4, num_blocks=2, generator=rng))
    init = ConditionedPrototypes(model, generator=rng, metric_scale=0.5)
    perturb(init, 0.3)
    return Learner(
        model, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=0
    ).double()


class Plain(nn.Module):
    """The features of a Conv4 of two blocks, whose norms may be followed by scale and shift."""

    def __init__(self, model: Conv4) -> None:
        super().__init__()
        model = copy.deepcopy(model)
        self.blocks = [(model.conv1, model.norm1), (model.conv2, model.norm2)]
        self.film = [(1.0, 0.0)] * 2

    def forward(self, x):
        for (conv, norm), (gamma, beta) in zip(self.blocks, self.film, strict=True):
            x = gamma * norm(F.conv2d(x, conv.weight, conv.bias, padding=1)) + beta
            x = F.max_pool2d(F.leaky_relu(x, 0.01), 2)
        return x.flatten(1)


def scaled_distances(features, y, queries, alpha):
    centers = torch.stack([features[y == label].mean(0) for label in range(3)])
    squares = (queries[:, None] - centers).square().sum(2)
    return (-alpha * squares).log_softmax(1)


def test_without_conditioning_it_is_a_scaled_prototypical_network(learner, randn) -> None:
    x, queries, y = randn(1, 9, 1, 8, 8), randn(1, 5, 1, 8, 8), torch.arange(9)[None] % 3
    with torch.no_grad():
        learner.init.gamma0.zero_()
        learner.init.beta0.zero_()
        features = Plain(learner.model)
        expected = scaled_distances(features(x[0]), y[0], features(queries[0]), learner.init.alpha)
    found = learner.adapt(x, y).predict(queries)[0].log_softmax(1)
    torch.testing.assert_close(found, expected)


def test_conditioning_scales_and_shifts_every_normalization(learner, randn) -> None:
    x, queries, y = randn(1, 9, 1, 8, 8), randn(1, 5, 1, 8, 8), torch.arange(9)[None] % 3
    init, features = learner.init, Plain(learner.model)

    def generated(network, c):
        out = F.linear(c, network[0].weight, network[0].bias)
        for layer in network[1:]:
            out = out + F.linear(F.relu(out), layer.weight, layer.bias)
        return out[:, None, None]

    z = features(x[0])
    c = torch.stack([z[y[0] == label].mean(0) for label in range(3)]).mean(0)
    features.film = [
        (1 + init.gamma0[i] * generated(init.h[i], c), init.beta0[i] * generated(init.g[i], c))
        for i in range(2)
    ]
    expected = scaled_distances(features(x[0]), y[0], features(queries[0]), init.alpha)
    found = learner.adapt(x, y).predict(queries)[0].log_softmax(1)
    torch.testing.assert_close(found, expected)
    features.film = [(1.0, 0.0)] * 2
    without = scaled_distances(features(x[0]), y[0], features(queries[0]), init.alpha)
    assert not torch.allclose(found, without, atol=1e-2)


def test_only_norms_and_the_head_differ_between_tasks(learner) -> None:
    names = {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}
    assert set(learner.init.layers) == {*names, "linear.weight", "linear.bias"}
    more = ConditionedPrototypes(learner.model, adapt="conv2.weight")
    assert set(more.layers) == {*names, "linear.weight", "linear.bias", "conv2.weight"}
    trained = {id(p) for p in more.meta_parameters()}
    assert id(learner.model.norm1.weight) in trained
    assert id(learner.model.linear.weight) not in trained


def test_faults_are_errors() -> None:
    with pytest.raises(ConfigError, match="no normalization layer with scale and shift"):
        ConditionedPrototypes(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))
    with pytest.raises(ConfigError, match="`depth` must be at least 1"):
        ConditionedPrototypes(Conv4((1, 8, 8), 3, filters=4, num_blocks=2), depth=0)
