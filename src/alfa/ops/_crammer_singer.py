"""The dual of a multi-class support vector machine, with derivatives."""

import torch
from torch import Tensor

_NUM_ITERATIONS = 40
# Largest complementarity gap of a solution, relative to the scale of alpha, and largest residual.
_MAX_GAP, _MAX_RESIDUAL = 1e-13, 1e-9


def crammer_singer_dual(gram: Tensor, labels: Tensor, *, c: float) -> Tensor:
    """Solve the dual problem of Crammer and Singer's support vector machine for every task.

    With alpha ``[example, class]`` and one-hot labels e, it minimizes
    ``sum_m alpha_m^T gram alpha_m / 2 - sum(e * alpha)`` subject to ``alpha <= c e`` and
    ``alpha.sum(1) = 0``. A primal-dual interior-point method (Mehrotra, 1992) determines the
    constraints ``alpha = c e`` that are active. The solution is then the solution of a linear
    system, whose derivatives are those of alpha (implicit differentiation of the optimality
    conditions).

    Args:
        gram: positive definite, ``[task, example, example]``; use float64.
        labels: e, ``[task, example, class]``.
        c: the weight of the training errors.

    Examples:
        >>> import torch
        >>> from alfa.ops import crammer_singer_dual
        >>> labels = torch.eye(2, dtype=torch.float64)[None]
        >>> crammer_singer_dual(labels, labels, c=0.1)[0]  # all errors have full weight
        tensor([[ 0.1000, -0.1000],
                [-0.1000,  0.1000]], dtype=torch.float64)
    """
    with torch.no_grad():
        active = _active(gram.detach(), labels, c)
    return _solution(gram, labels, c, active)


def _solution(gram: Tensor, labels: Tensor, c: float, active: Tensor) -> Tensor:
    """Return alpha, given the active constraints.

    Solves gram alpha + nu = e for inactive entries, alpha = c e for active ones, and
    alpha.sum(1) = 0, with one nu for each example.
    """
    num_tasks, num_examples, way = labels.shape
    size = num_examples * way
    free = (~active).to(gram.dtype).reshape(num_tasks, size, 1)
    equality = _equality(labels)
    top = torch.cat([free * _blocks(gram, way), free * equality.mT], dim=2)
    top = top + torch.nn.functional.pad(torch.diag_embed((1 - free).squeeze(2)), (0, num_examples))
    bottom = torch.nn.functional.pad(equality, (0, num_examples))
    e = labels.reshape(num_tasks, size, 1)
    right = torch.cat([free * e + (1 - free) * c * e, e.new_zeros(num_tasks, num_examples, 1)], 1)
    solved: Tensor = torch.linalg.solve(torch.cat([top, bottom], dim=1), right)
    return solved[:, :size, 0].reshape(labels.shape)


def _active(gram: Tensor, labels: Tensor, c: float) -> Tensor:
    """Return which constraints are active at the solution, ``[task, example, class]``."""
    way = labels.shape[2]
    slack = torch.full_like(labels, c / way)
    alpha, nu = c * labels - slack, torch.zeros_like(labels[:, :, :1])
    gradient = gram @ alpha - labels
    multiplier = torch.ones_like(labels) * gradient.abs().amax((1, 2), keepdim=True).clamp_min(1)
    # Multipliers have the scale of the labels, and alpha that of the inverse Gram matrix.
    scale = gram.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1 / c).view(-1, 1, 1)
    for _ in range(_NUM_ITERATIONS):
        gap = (slack * multiplier).mean((1, 2), keepdim=True)
        residual = gram @ alpha - labels + multiplier + nu
        newton = _Newton(gram, residual, slack, multiplier)
        d_alpha, _, d_multiplier = newton.direction(torch.zeros_like(slack))
        length = newton.length(d_alpha, d_multiplier)
        next_gap = (slack - length * d_alpha) * (multiplier + length * d_multiplier)
        centering = (next_gap.mean((1, 2), keepdim=True) / gap) ** 3
        d_alpha, d_nu, d_multiplier = newton.direction(centering * gap + d_alpha * d_multiplier)
        length = 0.99 * newton.length(d_alpha, d_multiplier)
        # A task keeps its solution, while others of the stack continue.
        is_exact = residual.abs().amax((1, 2), keepdim=True) <= _MAX_RESIDUAL
        is_done = is_exact & (gap <= _MAX_GAP / scale)
        if bool(is_done.all()):
            break
        length = torch.where(is_done, 0, length)
        alpha, nu = alpha + length * d_alpha, nu + length * d_nu
        slack, multiplier = slack - length * d_alpha, multiplier + length * d_multiplier
    # Slacks are from 0 to c and sum to c, so the largest of an example is not active.
    largest = slack == slack.amax(2, keepdim=True)
    return (multiplier > scale * slack) & ~largest


class _Newton:
    """Newton's equations at an interior point of every task."""

    def __init__(self, gram: Tensor, residual: Tensor, slack: Tensor, multiplier: Tensor) -> None:
        self.residual, self.slack, self.multiplier = residual, slack, multiplier
        ratio = (multiplier / slack).flatten(1)
        # Features that are not finite must give a solution that is not finite, and no error.
        self.factor, _ = torch.linalg.cholesky_ex(
            _blocks(gram, slack.shape[2]) + torch.diag_embed(ratio)
        )
        self.equality = _equality(slack)
        self.inverse_equality = torch.cholesky_solve(self.equality.mT, self.factor)
        self.schur, _ = torch.linalg.cholesky_ex(self.equality @ self.inverse_equality)

    def direction(self, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the changes of alpha, nu, and the multipliers towards slack x multiplier."""
        right = (self.multiplier - target / self.slack - self.residual).flatten(1).unsqueeze(2)
        alone = torch.cholesky_solve(right, self.factor)
        d_nu = torch.cholesky_solve(self.equality @ alone, self.schur)
        d_alpha = (alone - self.inverse_equality @ d_nu).reshape(self.slack.shape)
        d_multiplier = (target + self.multiplier * d_alpha) / self.slack - self.multiplier
        return d_alpha, d_nu, d_multiplier

    def length(self, d_alpha: Tensor, d_multiplier: Tensor) -> Tensor:
        """Return the longest step of every task that keeps slacks and multipliers positive."""
        rates = torch.maximum(d_alpha / self.slack, -d_multiplier / self.multiplier)
        return 1 / rates.amax((1, 2), keepdim=True).clamp_min(1)


def _blocks(gram: Tensor, way: int) -> Tensor:
    """Return the Kronecker product of each Gram matrix with the identity of the classes."""
    identity = torch.eye(way, dtype=gram.dtype, device=gram.device)
    product = gram[:, :, None, :, None] * identity[None, None, :, None, :]
    return product.flatten(3).flatten(1, 2)


def _equality(labels: Tensor) -> Tensor:
    """Return the matrix ``[task, example, example x class]`` that sums over classes."""
    num_tasks, num_examples, way = labels.shape
    identity = torch.eye(num_examples, dtype=labels.dtype, device=labels.device)
    return identity.repeat_interleave(way, dim=1).expand(num_tasks, -1, -1)
