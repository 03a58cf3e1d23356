"""Activation-to-Parameter's init: a learned map from mean features to class weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.inits import WeightMap
from alfa.learner import Learner
from alfa.ops import cross_entropy
from alfa.rules import SGD


@pytest.fixture
def learner():
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4))
    init = WeightMap(model)
    rule = SGD(init.layers, learning_rate=0.1)
    return Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=0).double()


def logits(weights, features):
    return torch.stack([features @ w for w in weights], dim=1)


def test_the_identity_gives_imprinted_weights(learner, randn) -> None:
    x, queries, y = randn(1, 9, 3), randn(1, 5, 3), torch.arange(9)[None] % 3
    features, of_queries = (learner.model[:2](z[0]) for z in (x, queries))
    means = [features[label::3].mean(0) for label in range(3)]
    imprinted = [mean / mean.norm() for mean in means]
    expected = logits(imprinted, of_queries)
    torch.testing.assert_close(learner.adapt(x, y).predict(queries)[0], expected)


def test_a_trained_map_equals_the_formula(learner, randn, perturb) -> None:
    perturb(learner.init, 0.3)
    x, y = randn(1, 8, 3), torch.arange(8)[None] % 4
    features, init = learner.model[:2](x[0]), learner.init
    weights = []
    for label in range(4):
        mean = features[label::4].mean(0)
        hidden = F.relu(init.first.weight @ (mean / mean.norm()) + init.first.bias)
        out = init.second.weight @ hidden + init.second.bias
        weights.append(out / out.norm())
    expected = logits(weights, features)
    torch.testing.assert_close(learner.adapt(x, y).predict(x)[0], expected)


def test_inner_steps_continue_from_the_map(learner, randn) -> None:
    x, y = randn(2, 12, 3), torch.arange(12).expand(2, -1) % 4
    before, after = (learner.loss(learner.adapt(x, y, num_steps=n).predict(x), y) for n in (0, 20))
    assert bool((after < before).all())
