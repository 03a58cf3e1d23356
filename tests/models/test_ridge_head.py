"""Ridge regression on the features of each task."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

from alfa.errors import ConfigError
from alfa.models import RidgeRegression
from alfa.models._call import call


@pytest.mark.parametrize("counts", [(1, 1), (5, 5, 5), (40, 5, 1, 2)])
@pytest.mark.parametrize("size", [3, 60])
def test_outputs_equal_scikit_learns(randn, counts: tuple[int, ...], size: int) -> None:
    way = len(counts)
    y = torch.repeat_interleave(torch.arange(way), torch.tensor(counts))
    z, queries = 3 * randn(2, len(y), size), randn(2, 7, size)
    head = RidgeRegression((size,), way, regularization=0.3, scale=4.0).double()
    found = head.fit(z, y.expand(2, -1), way)
    weights = len(y) / (way * torch.tensor(counts)[y])
    for task in range(2):
        unit, unit_queries = (nn.functional.normalize(x[task], dim=1) for x in (z, queries))
        theirs = Ridge(alpha=0.3).fit(unit, nn.functional.one_hot(y, way), sample_weight=weights)
        expected = torch.from_numpy(4 * theirs.predict(unit_queries.numpy()))
        own = {name: tensor[task] for name, tensor in found.items()}
        torch.testing.assert_close(call(head, own, 5 * queries[task]), expected)


def test_copies_of_a_class_change_nothing(randn) -> None:
    z, y = randn(1, 6, 9), torch.tensor([[0, 0, 1, 1, 2, 2]])
    head = RidgeRegression((9,), 3).double()
    # Without the regularization, whose weight depends on the number of examples, both are equal.
    head.regularization = 1e-9
    more = torch.cat([z, z[:, :2]], 1), torch.cat([y, y[:, :2]], 1)
    once, twice = head.fit(z, y, 3), head.fit(*more, 3)
    for name, tensor in once.items():
        torch.testing.assert_close(tensor, twice[name], rtol=1e-5, atol=1e-5)


def test_the_outer_gradient_equals_finite_differences(randn) -> None:
    z, y = randn(2, 6, 3).requires_grad_(), torch.arange(6).expand(2, -1) % 3
    head = RidgeRegression((3,), 3).double()
    assert torch.autograd.gradcheck(lambda z: tuple(head.fit(z, y, 3).values()), z)


def test_a_class_without_examples_raises(randn) -> None:
    with pytest.raises(ConfigError, match="task 1 has no example of class 2"):
        RidgeRegression((3,), 3).fit(randn(2, 3, 3), torch.tensor([[0, 1, 2], [0, 1, 1]]), 3)


@pytest.mark.parametrize("name", ["regularization", "scale"])
def test_options_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` must be above 0, got 0"):
        RidgeRegression((3,), 2, **{name: 0})
