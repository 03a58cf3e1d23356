"""UNICORN-MAML's init: one vector for all classes."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.inits import SharedHead
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.ops import cross_entropy
from alfa.rules import ALFA, SGD
from alfa.types import Episode


def learner_of(model, perturb, rule=SGD, **options):
    init = perturb(SharedHead(model))
    options = {"order": "first", "num_steps": 4, **options}
    return Learner(model, init=init, rule=rule(init.layers), loss=cross_entropy, **options).double()


@pytest.mark.parametrize("rule", [SGD, ALFA])
def test_permuting_classes_permutes_outputs(randn, perturb, rule) -> None:
    learner = learner_of(perturb(Conv4((1, 8, 8), 2, filters=4, num_blocks=2)), perturb, rule)
    x, queries, y = randn(1, 8, 1, 8, 8), randn(1, 5, 1, 8, 8), torch.arange(8)[None] % 4
    before = learner.adapt(x, y).predict(queries)
    assert before.std(-1).min() > 1e-4
    for permutation in itertools.permutations(range(4)):
        order = torch.tensor(permutation)
        after = learner.adapt(x, order[y]).predict(queries)
        # Only the order of sums over classes differs.
        torch.testing.assert_close(after[..., order], before, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("way", [2, 5, 11])
def test_tasks_may_have_any_number_of_classes(randn, perturb, way) -> None:
    learner = learner_of(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4)), perturb)
    y = torch.arange(2 * way).expand(2, -1) % way
    assert learner.adapt(randn(2, 2 * way, 3), y).predict(randn(2, 7, 3)).shape == (2, 7, way)


def test_first_order_training_equals_a_plain_loop(randn, perturb) -> None:
    """The vector gets the summed first-order gradient of all rows."""
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    learner = learner_of(model, perturb)
    learner.rule.learning_rate = 0.1
    y = torch.arange(6)[None] % 3
    episode = Episode(randn(1, 6, 3), y, randn(1, 6, 3), y)
    vector, first = learner.init.vector, model[0]
    found = torch.autograd.grad(learner(episode).losses.sum(), [vector, *first.parameters()])
    w = vector.detach().repeat(3, 1).requires_grad_()
    b = torch.zeros(3, dtype=torch.float64).requires_grad_()
    body = [p.detach().clone().requires_grad_() for p in first.parameters()]

    def loss(parameters, x):
        w, b, weight, bias = parameters
        return F.cross_entropy(F.linear(F.linear(x, weight, bias).tanh(), w, b), y[0])

    parameters = [w, b, *body]
    for _ in range(4):
        gradients = torch.autograd.grad(loss(parameters, episode.support_x[0]), parameters)
        parameters = [
            (p - 0.1 * g).detach().requires_grad_()
            for p, g in zip(parameters, gradients, strict=True)
        ]
    expected = torch.autograd.grad(loss(parameters, episode.query_x[0]), parameters)
    torch.testing.assert_close(found[0], expected[0].sum(0))
    for own, other in zip(found[1:], expected[2:], strict=True):
        torch.testing.assert_close(own, other)
