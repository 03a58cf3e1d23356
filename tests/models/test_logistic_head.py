"""Logistic regression on the features of each task."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from alfa.errors import ConfigError
from alfa.models import LogisticHead
from alfa.models._call import call
from alfa.ops import logistic_regression


def scikit_learn(z, y, c):
    return LogisticRegression(C=c, tol=1e-12, max_iter=10_000).fit(z.numpy(), y.numpy())


@pytest.mark.parametrize("c", [0.1, 1.0, 100.0])
@pytest.mark.parametrize(("way", "shot", "size"), [(5, 1, 40), (3, 6, 4), (20, 3, 16)])
def test_weights_and_probabilities_equal_scikit_learns(randn, way, shot, size, c) -> None:
    z, queries = randn(2, way * shot, size), randn(2, 7, size)
    y = torch.stack([torch.arange(way).repeat(shot), torch.arange(way).repeat_interleave(shot)])
    head = LogisticHead((size,), way, inverse_regularization=c).double()
    found = head.fit(3 * z, y, way)
    for task in range(2):
        unit, unit_queries = (nn.functional.normalize(x[task], dim=1) for x in (z, queries))
        theirs = scikit_learn(unit, y[task], c)
        own = {name: tensor[task] for name, tensor in found.items()}
        weight, bias = (torch.from_numpy(t) for t in (theirs.coef_, theirs.intercept_))
        torch.testing.assert_close(own["weight"], weight, rtol=1e-4, atol=2e-5 * c**0.5)
        torch.testing.assert_close(own["bias"], bias - bias.mean(), rtol=1e-4, atol=2e-5 * c**0.5)
        probabilities = call(head, own, 5 * queries[task]).softmax(1)
        expected = torch.from_numpy(theirs.predict_proba(unit_queries.numpy()))
        torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-5)


def test_two_classes_have_two_rows(randn) -> None:
    z, y = randn(1, 8, 3), torch.arange(8)[None] % 2
    weight, bias = logistic_regression(z, y, 2)
    torch.testing.assert_close(weight[:, 0], -weight[:, 1], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(bias.sum(1), bias.new_zeros(1))


def test_the_gradient_of_a_solution_is_zero(randn) -> None:
    z, y = 10 * randn(2, 30, 6), torch.arange(30).expand(2, -1) % 5
    weight, bias = (t.requires_grad_() for t in logistic_regression(z, y, 5))
    outputs = z @ weight.mT + bias.unsqueeze(1)
    loss = nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="sum")
    gradients = torch.autograd.grad(loss + weight.square().sum() / 2, [weight, bias])
    assert max(float(g.abs().max()) for g in gradients) < 1e-9


def test_the_outer_gradient_equals_finite_differences(randn) -> None:
    z, y = randn(2, 6, 3).requires_grad_(), torch.arange(6).expand(2, -1) % 3
    assert torch.autograd.gradcheck(lambda z: logistic_regression(z, y, 3), z, atol=1e-7)


def test_single_precision_is_solved_as_closely(randn) -> None:
    z, y = randn(3, 25, 10), torch.arange(25).expand(3, -1) % 5
    exact = logistic_regression(z, y, 5)
    for found, expected in zip(logistic_regression(z.float(), y, 5), exact, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_faults_are_errors(randn) -> None:
    with pytest.raises(ConfigError, match="task 0 has no example of class 1"):
        logistic_regression(randn(1, 2, 3), torch.tensor([[0, 2]]), 3)
    with pytest.raises(ConfigError, match="`inverse_regularization` must be above 0, got 0"):
        LogisticHead((3,), 2, inverse_regularization=0)
