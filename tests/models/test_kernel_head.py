"""Kernel ridge regression on groups of features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge as TheirKernelRidge
from torch import Tensor
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models import KernelRidge
from alfa.models._call import call

GROUPS = (30, 20, 50)


def task(randn, informative: int, shot: int = 5) -> tuple[Tensor, Tensor]:
    """Return features of which one group differs between four classes, and labels."""
    y = torch.arange(4 * shot) % 4
    parts = [randn(len(y), size) for size in GROUPS]
    parts[informative] = 4 * randn(4, GROUPS[informative])[y] + parts[informative]
    return torch.cat(parts, dim=1), y


def similarity(x: Tensor, other: Tensor, middle: float, last: float) -> np.ndarray:
    """Return the kernel of one choice of the ratios."""
    first, second = ([F.normalize(p, dim=1) for p in t.split(GROUPS, dim=1)] for t in (x, other))
    products = [a @ b.mT for a, b in zip(first, second, strict=True)]
    local = torch.exp((products[2] - 1) / 0.1)
    mixed = products[0] + middle * products[1] + last * products[2] + 0.15 * local
    return (mixed / (1.15 + middle + last)).numpy()


def likelihood(z: Tensor, y: Tensor, middle: float, last: float) -> float:
    """Return the log marginal likelihood and prior of one choice of the ratios."""
    center = np.eye(len(y)) - 1 / len(y)
    e = center @ F.one_hot(y).numpy()
    cov = center @ similarity(z, z, middle, last) @ center + 0.2 * np.eye(len(y))
    variance = np.mean([t @ np.linalg.inv(cov) @ t for t in e.T]) / (len(y) - 1)
    score = -0.5 * ((len(y) - 1) * np.log(variance) + np.linalg.slogdet(cov)[1])
    return float(score - 0.2 * np.log1p(middle / 0.05) - 0.1 * np.log1p(last / 0.05))


@pytest.mark.parametrize(("informative", "expected"), [(0, (0, 0)), (1, (1, 0)), (2, (0, 3))])
def test_outputs_equal_scikit_learns_with_the_most_likely_ratios(
    randn, informative: int, expected: tuple[float, float]
) -> None:
    z, y = task(randn, informative)
    queries = randn(7, sum(GROUPS))
    head = KernelRidge((sum(GROUPS),), 4, groups=GROUPS, regularization=0.2, scale=3.0).double()
    own = {name: tensor[0] for name, tensor in head.fit(z[None], y[None], 4).items()}
    candidates = [(a, b) for a in (0, 0.1, 0.3, 1) for b in (0, 0.3, 1, 3)]
    chosen = max(candidates, key=lambda ratios: likelihood(z, y, *ratios))
    assert chosen == expected
    center = np.eye(len(y)) - 1 / len(y)
    gram = similarity(z, z, *chosen)
    targets = F.one_hot(y).double().numpy()
    ridge = TheirKernelRidge(alpha=0.2, kernel="precomputed")
    ridge.fit(center @ gram @ center, targets - 0.25)
    between = (similarity(queries, z, *chosen) - gram.mean(0)) @ center
    outputs = 3 * (ridge.predict(between) + 0.25)
    torch.testing.assert_close(call(head, own, queries), torch.from_numpy(outputs))


def test_tasks_have_ratios_of_their_own(randn) -> None:
    tasks = [task(randn, informative) for informative in (0, 2)]
    z, y = (torch.stack(x) for x in zip(*tasks, strict=True))
    head = KernelRidge((sum(GROUPS),), 4, groups=GROUPS).double()
    together = head.fit(z, y, 4)
    for number in range(2):
        alone = head.fit(z[number : number + 1], y[number : number + 1], 4)
        for name, tensor in alone.items():
            torch.testing.assert_close(together[name][number], tensor[0])


def test_a_large_class_is_not_favored(randn) -> None:
    """The accuracy of the small classes hardly depends on the size of the large one."""
    z, y = task(randn, 0, shot=60)
    z = z + 0.8 * randn(*z.shape)
    head = KernelRidge((sum(GROUPS),), 4, groups=GROUPS).double()
    members = [torch.nonzero(y == label).flatten() for label in range(4)]
    found = []
    for first in (5, 40):
        chosen = torch.cat([members[0][:first], *(other[:5] for other in members[1:])])
        own = head.fit(z[None, chosen], y[None, chosen], 4)
        new = torch.cat([other[5:] for other in members[1:]])
        outputs = call(head, {name: tensor[0] for name, tensor in own.items()}, z[new])
        found.append(float((outputs.argmax(1) == y[new]).double().mean()))
    assert found[1] > found[0] - 0.05


def test_many_examples_choose_the_ratios_by_some_of_them(randn) -> None:
    z, y = task(randn, 2, shot=250)
    head = KernelRidge((sum(GROUPS),), 4, groups=GROUPS).double()
    own = {name: tensor[0] for name, tensor in head.fit(z[None], y[None], 4).items()}
    weights = own["weight"].split(GROUPS, dim=1)
    assert float(weights[2].norm()) > 3 * float(weights[0].norm())


def test_the_outer_gradient_equals_finite_differences(randn) -> None:
    head = KernelRidge((10,), 2, groups=(4, 3, 3)).double()
    y = torch.tensor([[0, 0, 1, 1, 1]])
    queries = randn(3, 10)

    def loss(z: Tensor) -> Tensor:
        own = {name: tensor[0] for name, tensor in head.fit(z, y, 2).items()}
        return call(head, own, queries).square().sum()

    assert torch.autograd.gradcheck(loss, randn(1, 5, 10).requires_grad_())


@pytest.mark.parametrize("groups", [(50, 50), (30, 20, 51), (0, 50, 50)])
def test_invalid_groups_are_rejected(groups: tuple[int, ...]) -> None:
    message = r"`groups` must be three positive numbers with the sum 100, .* got \["
    with pytest.raises(ConfigError, match=message):
        KernelRidge((100,), 4, groups=groups)


@pytest.mark.parametrize("name", ["regularization", "scale"])
def test_invalid_options_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` must be above 0, got 0"):
        KernelRidge((100,), 4, groups=GROUPS, **{name: 0})
