"""Ridge regression on the features of each task."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

from alfa.errors import ConfigError
from alfa.models import RidgeRegression
from alfa.models._call import call


@pytest.mark.parametrize("counts", [(1, 1), (5, 5, 5), (3, 1, 2), (20, 5, 2, 3)])
@pytest.mark.parametrize("size", [3, 60])
def test_outputs_equal_scikit_learns(randn, counts: tuple[int, ...], size: int) -> None:
    way = len(counts)
    y = torch.repeat_interleave(torch.arange(way), torch.tensor(counts))
    z, queries = 3 * randn(2, len(y), size), randn(2, 7, size)
    head = RidgeRegression((size,), way, regularization=0.3, scale=4.0).double()
    found = head.fit(z, y.expand(2, -1), way)
    sizes = torch.tensor(counts)
    weights = (way / (1 / sizes).sum() / sizes[y]).double()
    for task in range(2):
        unit, unit_queries = (nn.functional.normalize(x[task], dim=1) for x in (z, queries))
        targets = nn.functional.one_hot(y, way).double()
        theirs = Ridge(alpha=0.3).fit(unit, targets, sample_weight=weights)
        # Shift the outputs by the mean over examples that a fit without them predicts.
        left_out = []
        for n in range(len(y)):
            rest = torch.arange(len(y)) != n
            fitted = Ridge(alpha=0.3).fit(unit[rest], targets[rest], sample_weight=weights[rest])
            left_out.append(torch.from_numpy(fitted.predict(unit[n : n + 1]))[0])
        stacked = torch.stack(left_out)
        mean = torch.stack([stacked[y == label].mean(0) for label in range(way)]).mean(0)
        strength = 1 - min(counts) / max(counts) if min(counts) > 1 else 0.0
        outputs = torch.from_numpy(theirs.predict(unit_queries.numpy()))
        expected = 4 * (outputs + strength * (1 / way - mean))
        own = {name: tensor[task] for name, tensor in found.items()}
        torch.testing.assert_close(call(head, own, 5 * queries[task]), expected)


def test_a_large_class_is_not_favored(randn) -> None:
    """The accuracy of the small classes hardly depends on the size of the large one."""
    centers, noise = randn(3, 40), 1.5
    y = torch.arange(3).repeat_interleave(60)
    z = centers[y] + noise * randn(180, 40)
    head = RidgeRegression((40,), 3).double()
    found = []
    for first in (5, 40):
        chosen = torch.cat([torch.arange(first), torch.arange(60, 65), torch.arange(120, 125)])
        own = head.fit(z[None, chosen], y[None, chosen], 3)
        outputs = call(head, {name: tensor[0] for name, tensor in own.items()}, z[70:])
        hits = (outputs.argmax(1) == y[70:])[y[70:] > 0]
        found.append(float(hits.double().mean()))
    assert found[1] > found[0] - 0.05


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
