"""Multinomial logistic regression for a stack of tasks, solved to convergence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.errors import ConfigError

_MAX_NEWTON_STEPS, _MAX_CG_STEPS, _MAX_HALVINGS = 100, 1000, 30
# Relative residuals of the linear systems of a Newton step and of the implicit gradient.
_NEWTON_RESIDUAL, _GRADIENT_RESIDUAL = 1e-6, 1e-11
# The largest entry of the gradient of a solution, for one example with C = 1.
_TOLERANCE = 1e-12


def logistic_regression(
    z: Tensor, y: Tensor, way: int, *, inverse_regularization: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Minimize |W|^2 / 2 + C sum_i cross-entropy(W z_i + b, y_i) for every task.

    This is the problem of scikit-learn's `LogisticRegression`, which does not regularize b either;
    the entries of b sum to zero. Newton's method solves it in float64. The outer gradient comes
    from the implicit function theorem, and has no derivative of its own.

    Args:
        z: features, ``[task, example, feature]``.
        y: class labels, ``[task, example]``; each of the `way` classes needs an example.
        way: number of classes.
        inverse_regularization: C.

    Returns:
        W, ``[task, class, feature]``, and b, ``[task, class]``.

    Examples:
        >>> import torch
        >>> from alfa.ops import logistic_regression
        >>> weight, bias = logistic_regression(torch.randn(3, 10, 4), torch.arange(10)[None] % 5, 5)
        >>> weight.shape, bias.shape
        (torch.Size([3, 5, 4]), torch.Size([3, 5]))
    """
    target = torch.nn.functional.one_hot(y, way).double()
    if bool((target.sum(1) == 0).any()):
        task, missing = (target.sum(1) == 0).nonzero()[0].tolist()
        raise ConfigError(
            f"the support set of task {task} has no example of class {missing}, but logistic "
            f"regression needs at least one; number the classes of a task from 0 to {way - 1}."
        )
    # The last column of theta is b.
    x = torch.cat([z.double(), z.new_ones(*z.shape[:2], 1).double()], dim=2)
    c = float(inverse_regularization)

    def gradient(theta: Tensor, x: Tensor) -> Tensor:
        residual = (x @ theta.mT).softmax(2) - target
        return _regularized(theta) + c * residual.mT @ x

    with torch.no_grad():
        theta = _newton(x, target, c, gradient)
    if torch.is_grad_enabled() and x.requires_grad:
        hessian = _hessian(x.detach(), theta, c)
        # d theta = -H^-1 d(gradient), because the gradient at theta stays zero
        theta = theta - _Solution.apply(gradient(theta, x), hessian)  # type: ignore[no-untyped-call]
    return theta[..., :-1].to(z.dtype), theta[..., -1].to(z.dtype)


def _regularized(theta: Tensor) -> Tensor:
    """Return the gradient of |W|^2 / 2 + class (mean b)^2 / 2.

    Equal changes of all entries of b change no probability, so the second term only sets their sum
    to zero.
    """
    means = theta[..., -1:].mean(1, keepdim=True).expand(-1, theta.shape[1], -1)
    return torch.cat([theta[..., :-1], means], dim=2)


Hessian = Callable[[Tensor], Tensor]
"""Function that multiplies the Hessian of each task with ``[task, class, feature]``."""


def _newton(
    x: Tensor,
    target: Tensor,
    c: float,
    gradient: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    def loss(theta: Tensor) -> Tensor:
        fit = -((x @ theta.mT).log_softmax(2) * target).sum((1, 2))
        return (_regularized(theta) * theta).sum((1, 2)) / 2 + c * fit

    theta = x.new_zeros(x.shape[0], target.shape[2], x.shape[2])
    tolerance = _TOLERANCE * max(1.0, c * x.shape[1])
    for _ in range(_MAX_NEWTON_STEPS):
        g = gradient(theta, x)
        if not bool((g.abs().amax((1, 2)) > tolerance).any()):
            break
        step = _solve(_hessian(x, theta, c), g, _NEWTON_RESIDUAL)
        size, before, slope = x.new_ones(len(x), 1, 1), loss(theta), (g * step).sum((1, 2))
        for _ in range(_MAX_HALVINGS):
            # Rounding hides smaller decreases than the last term.
            most = before - 1e-4 * size.view(-1) * slope + 1e-12 * before.abs()
            is_too_long = loss(theta - size * step) > most
            if not bool(is_too_long.any()):
                break
            size = torch.where(is_too_long.view(-1, 1, 1), size / 2, size)
        theta = theta - size * step
    return theta


def _hessian(x: Tensor, theta: Tensor, c: float) -> Hessian:
    p = (x @ theta.mT).softmax(2)

    def product(v: Tensor) -> Tensor:
        along = p * (x @ v.mT)
        curved = along - p * along.sum(2, keepdim=True)
        return _regularized(v) + c * curved.mT @ x

    return product


def _solve(hessian: Hessian, g: Tensor, residual: float) -> Tensor:
    """Solve H v = g of every task by conjugate gradients."""
    v, r = torch.zeros_like(g), g
    direction, square = r, r.square().sum((1, 2), keepdim=True)
    least = residual**2 * square
    for _ in range(_MAX_CG_STEPS):
        is_active = square > least
        if not bool(is_active.any()):
            break
        product = hessian(direction)
        curvature = (direction * product).sum((1, 2), keepdim=True)
        # Solved tasks stay as they are.
        step = torch.where(is_active, square / curvature, 0.0)
        v, r = v + step * direction, r - step * product
        next_square = r.square().sum((1, 2), keepdim=True)
        direction = r + torch.where(is_active, next_square / square, 0.0) * direction
        square = torch.where(is_active, next_square, square)
    return v


class _Solution(torch.autograd.Function):
    """Zero, with the gradient of H^-1 times the input."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, hessian: Hessian) -> Tensor:
        ctx.hessian = hessian
        return torch.zeros_like(g)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _solve(ctx.hessian, grad, _GRADIENT_RESIDUAL), None
