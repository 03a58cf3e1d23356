"""The dual of a multi-class support vector machine against other solvers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from alfa.ops import crammer_singer_dual


def problem(num_tasks: int, num_examples: int, way: int, *, spread: float = 1.0, ridge: float = 1):
    """Return features, Gram matrices, and one-hot labels."""
    rng = torch.Generator().manual_seed(num_examples)
    y = torch.arange(num_examples).remainder(way)
    centers = spread * torch.randn(num_tasks, way, 5, generator=rng, dtype=torch.float64)
    z = torch.randn(num_tasks, num_examples, 5, generator=rng, dtype=torch.float64) + centers[:, y]
    labels = torch.nn.functional.one_hot(y, way).double().expand(num_tasks, -1, -1)
    return z, z @ z.mT + ridge * torch.eye(num_examples, dtype=torch.float64), labels


@pytest.mark.parametrize("c", [0.1, 0.5])
def test_the_solution_is_that_of_a_general_solver(c) -> None:
    _, gram, labels = problem(2, 6, 3)
    found = crammer_singer_dual(gram, labels, c=c)
    for task in range(2):
        g, e = gram[task].numpy(), labels[task].numpy()

        def value(flat, g=g, e=e):
            a = flat.reshape(e.shape)
            return 0.5 * np.sum(a * (g @ a)) - np.sum(e * a), ((g @ a) - e).ravel()

        result = minimize(
            value,
            np.zeros(e.size),
            jac=True,
            method="SLSQP",
            bounds=[(None, c * high) for high in e.ravel()],
            constraints={"type": "eq", "fun": lambda flat, e=e: flat.reshape(e.shape).sum(1)},
            options={"ftol": 1e-15, "maxiter": 1_000},
        )
        np.testing.assert_allclose(found[task], result.x.reshape(e.shape), rtol=0, atol=1e-6)


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_the_weights_are_those_of_liblinear(spread) -> None:
    z, gram, labels = problem(3, 20, 4, spread=spread, ridge=1e-6)
    weights = crammer_singer_dual(gram, labels, c=0.1).mT @ z
    for task in range(3):
        machine = LinearSVC(
            multi_class="crammer_singer", C=0.1, fit_intercept=False, tol=1e-9, max_iter=100_000
        ).fit(z[task].numpy(), labels[task].argmax(1).numpy())
        np.testing.assert_allclose(weights[task], machine.coef_, rtol=0, atol=2e-6)


def test_the_solution_is_feasible_for_features_of_any_size() -> None:
    for factor in (1e-3, 1.0, 1e3):
        z, _, labels = problem(4, 25, 5)
        gram = factor**2 * z @ z.mT + torch.eye(25, dtype=torch.float64)
        alpha = crammer_singer_dual(gram, labels, c=0.1)
        assert float((alpha - 0.1 * labels).max()) < 1e-12
        assert float(alpha.sum(2).abs().max()) < 1e-12
        # At the solution, the gradient is constant within an example over inactive entries, and
        # at most as large over active ones.
        gradient = gram @ alpha - labels
        inactive = alpha < 0.1 * labels - 1e-9
        largest = gradient.masked_fill(~inactive, -torch.inf).amax(2, keepdim=True)
        smallest = gradient.masked_fill(~inactive, torch.inf).amin(2, keepdim=True)
        assert float((largest - smallest).max()) < 1e-8
        assert float((gradient - smallest).masked_fill(inactive, -1).max()) < 1e-8


def test_derivatives_are_those_of_finite_differences() -> None:
    z, _, labels = problem(2, 6, 3)
    identity = torch.eye(6, dtype=torch.float64)

    def solve(z):
        return crammer_singer_dual(z @ z.mT + identity, labels, c=0.1)

    alpha = solve(z)
    is_active = (alpha - 0.1 * labels).abs() < 1e-12
    assert 0 < int(is_active.sum()) < is_active.numel()
    assert torch.autograd.gradcheck(solve, z.requires_grad_())


def test_a_stack_is_its_tasks_solved_alone() -> None:
    _, gram, labels = problem(3, 12, 3)
    gram = gram * torch.tensor([1e-2, 1.0, 1e3]).double().view(3, 1, 1)
    together = crammer_singer_dual(gram, labels, c=0.1)
    for task in range(3):
        alone = crammer_singer_dual(gram[task, None], labels[task, None], c=0.1)
        torch.testing.assert_close(together[task, None], alone, rtol=0, atol=1e-13)


def test_features_that_are_not_finite_give_no_error() -> None:
    _, gram, labels = problem(2, 6, 3)
    gram[1, 0, 0] = torch.nan
    alpha = crammer_singer_dual(gram, labels, c=0.1)
    assert bool(alpha[0].isfinite().all())
    assert bool(alpha[1].isnan().any())
