"""The support gradient of a stack of convolution blocks, and its derivative, by hand.

A block is a 3 x 3 convolution without bias (a bias before batch norm changes nothing, and has
gradient zero) and `norm_pool_act`. One pass forwards and one back give the gradient g of the
loss. Its derivative in the direction v, for the outer gradient, is a tangent pass forwards and
back: the Hessian is symmetric, so the product with it from the left is the one from the right.
The same pass gives the derivative of the gradient in gamma and beta, which is what the outer
loop needs for parameters that the inner loop does not adapt.

Per block that makes the products of `conv` in

    z = a * W;  dW = dz . a,  da = dz * W';                           forwards, back
    zdot = a * V + adot * W;                                         tangent forwards
    dWdot = dzdot . a + dz . adot,  dadot = dzdot * W' + dz * V'      and back

which are nine, and four in the first block, whose input has neither gradient nor tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from alfa.ops import _norm


@dataclass(frozen=True)
class Weights:
    """The adapted parameters of one task, or a direction in their space.

    Attributes:
        convs: ``[out, in, 3, 3]`` for each block.
        linear: ``[class, feature]``.
        bias: ``[class]``.
    """

    convs: list[Tensor]
    linear: Tensor
    bias: Tensor

    @classmethod
    def of(cls, row: Tensor, shapes: Sequence[torch.Size]) -> Weights:
        """From a row: each block's weight and bias, then the linear layer's."""
        parts = row.split([shape.numel() for shape in shapes])
        tensors = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        return cls(tensors[:-2:2], tensors[-2], tensors[-1])

    def row(self) -> Tensor:
        """The row that they came from, with zeros for the biases before batch norm."""
        tensors: list[Tensor] = []
        for conv in self.convs:
            tensors += [conv.flatten(), conv.new_zeros(conv.shape[0])]
        return torch.cat([*tensors, self.linear.flatten(), self.bias])


@dataclass(frozen=True)
class Norms:
    """gamma and beta of each block, ``[channel]``, or their gradients."""

    gammas: list[Tensor]
    betas: list[Tensor]


@dataclass(frozen=True)
class _Passed:
    """What the passes forwards and back leave for the tangent."""

    activations: list[Tensor]
    saved: list[_norm.Saved]
    features: Tensor
    probabilities: Tensor
    dlogits: Tensor
    us: list[Tensor]
    dzs: list[Tensor]


def conv_gradients(
    x: Tensor, targets: Tensor, theta: Tensor, norms: Norms, shapes: Sequence[torch.Size]
) -> tuple[Tensor, Tensor]:
    """Each task's mean cross-entropy and its gradient in the adapted parameters.

    Args:
        x: images, ``[task, example, channel, height, width]``, which need no gradient.
        targets: classes, ``[task, example]``.
        theta: ``[task, size]``: each block's weight and bias, then the linear layer's.
        norms: gamma and beta of each block, shared by all tasks.
        shapes: of the layers in `theta`.

    Returns:
        Losses ``[task]``, as constants, and the gradient, which can be differentiated once in
        `theta` and `norms`.
    """
    return _Gradients.apply(  # type: ignore[no-any-return, no-untyped-call]
        theta, x, targets, tuple(shapes), *norms.gammas, *norms.betas
    )


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        theta: Tensor,
        x: Tensor,
        targets: Tensor,
        shapes: tuple[torch.Size, ...],
        *norms: Tensor,
    ) -> tuple[Tensor, Tensor]:
        middle = len(norms) // 2
        own = Norms(list(norms[:middle]), list(norms[middle:]))
        losses, gradient = theta.new_empty(theta.shape[0]), torch.empty_like(theta)
        keep = any(ctx.needs_input_grad)
        passed = []
        for task, row in enumerate(theta):
            weights = Weights.of(row, shapes)
            losses[task], grads, left = _gradient(x[task], targets[task], weights, own)
            gradient[task] = grads.row()
            if keep:
                passed.append(left)
        ctx.passed, ctx.shapes, ctx.norms = passed, shapes, own
        ctx.save_for_backward(theta)
        ctx.mark_non_differentiable(losses)
        return losses, gradient

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, v: Tensor) -> tuple[Tensor | None, ...]:
        (theta,) = ctx.saved_tensors
        product = torch.empty_like(theta)
        gammas = [torch.zeros_like(gamma) for gamma in ctx.norms.gammas]
        betas = [torch.zeros_like(beta) for beta in ctx.norms.betas]
        for task, passed in enumerate(ctx.passed):
            weights, direction = (Weights.of(rows[task], ctx.shapes) for rows in (theta, v))
            own, norms = _gradient_tangent(weights, direction, ctx.norms, passed)
            product[task] = own.row()
            for total, part in zip((*gammas, *betas), (*norms.gammas, *norms.betas), strict=True):
                total += part
        return (product, None, None, None, *gammas, *betas)


def _gradient(
    x: Tensor, targets: Tensor, weights: Weights, norms: Norms
) -> tuple[Tensor, Weights, _Passed]:
    """The loss of one task and its gradient."""
    activations, saved = [_last(x)], []
    for conv, gamma, beta in zip(weights.convs, norms.gammas, norms.betas, strict=True):
        a, left = _norm.forward(_conv(activations[-1], conv), gamma, beta, 0.01)
        activations.append(a)
        saved.append(left)
    features = _flatten(activations[-1])
    logits = torch.addmm(weights.bias, features, weights.linear.T)
    log_probabilities = logits.log_softmax(1)
    loss = F.nll_loss(log_probabilities, targets)
    probabilities = log_probabilities.exp()
    dlogits = (probabilities - F.one_hot(targets, logits.shape[1])) / len(targets)

    da = _unflatten(dlogits @ weights.linear, activations[-1])
    convs: list[Tensor] = []
    us: list[Tensor] = []
    dzs: list[Tensor] = []
    for block in range(len(saved) - 1, -1, -1):
        dz, _, _, u = _norm.backward(da, norms.gammas[block], saved[block])
        convs.append(_conv_dw(dz, activations[block], weights.convs[block]))
        us.append(u)
        dzs.append(dz)
        if block > 0:
            da = _conv_dx(dz, activations[block], weights.convs[block])
    gradient = Weights(convs[::-1], dlogits.T @ features, dlogits.sum(0))
    passed = _Passed(activations, saved, features, probabilities, dlogits, us[::-1], dzs[::-1])
    return loss, gradient, passed


def _gradient_tangent(
    weights: Weights, direction: Weights, norms: Norms, passed: _Passed
) -> tuple[Weights, Norms]:
    """The derivative of the gradient, in all parameters, in a direction of the weights."""
    zero = torch.zeros_like(norms.gammas[0])
    adots: list[Tensor | None] = [None]  # the images have no tangent
    zdots, from_tangents = [], []
    for block, saved in enumerate(passed.saved):
        zdot = _conv(passed.activations[block], direction.convs[block])
        below = adots[-1]
        if below is not None:
            zdot += _conv(below, weights.convs[block])
        adot, left = _norm.tangent(zdot, zero, zero, norms.gammas[block], saved)
        adots.append(adot)
        zdots.append(zdot)
        from_tangents.append(left)
    last = adots[-1]
    assert last is not None
    features, featuresdot = passed.features, _flatten(last)
    p, dlogits = passed.probabilities, passed.dlogits
    logitsdot = features @ direction.linear.T + featuresdot @ weights.linear.T + direction.bias
    # The derivative of softmax: diag(p) - p p'
    dlogitsdot = p * (logitsdot - (p * logitsdot).sum(1, keepdim=True)) / len(p)

    dadot = _unflatten(dlogitsdot @ weights.linear + dlogits @ direction.linear, last)
    convs: list[Tensor] = []
    gammas: list[Tensor] = []
    betas: list[Tensor] = []
    for block in range(len(passed.saved) - 1, -1, -1):
        a, below, dz = passed.activations[block], adots[block], passed.dzs[block]
        weight, v = weights.convs[block], direction.convs[block]
        dzdot, gammadot, betadot = _norm.backward_tangent(
            dadot,
            passed.us[block],
            zdots[block],
            zero,
            norms.gammas[block],
            passed.saved[block],
            from_tangents[block],
        )
        dweight = _conv_dw(dzdot, a, weight)
        if below is not None:
            dweight += _conv_dw(dz, below, weight)
            dadot = _conv_dx(dzdot, a, weight)
            dadot += _conv_dx(dz, a, v)
        convs.append(dweight)
        gammas.append(gammadot)
        betas.append(betadot)
    linear = dlogitsdot.T @ features + dlogits.T @ featuresdot
    own = Weights(convs[::-1], linear, dlogitsdot.sum(0))
    return own, Norms(gammas[::-1], betas[::-1])


def _flatten(a: Tensor) -> Tensor:
    """``[example, feature]``, in the order channel, height, width."""
    return a.permute(0, 3, 1, 2).flatten(1)


def _unflatten(features: Tensor, like: Tensor) -> Tensor:
    _, height, width, num_channels = like.shape
    images: Tensor = features.unflatten(1, (num_channels, height, width))
    return _last(images)


# The products of a convolution; images are [example, height, width, channel], which torch
# takes as channels-last.

_GEOMETRY: tuple[Any, ...] = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def _conv(x: Tensor, weight: Tensor) -> Tensor:
    return _last(torch.ops.aten.convolution(_first(x), weight, None, *_GEOMETRY))


def _conv_dx(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return _last(_conv_backward(dy, x, weight, [True, False, False])[0])


def _conv_dw(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return _conv_backward(dy, x, weight, [False, True, False])[1].contiguous()


def _conv_backward(dy: Tensor, x: Tensor, weight: Tensor, mask: list[bool]) -> list[Tensor]:
    return list(
        torch.ops.aten.convolution_backward(_first(dy), _first(x), weight, None, *_GEOMETRY, mask)
    )


def _first(images: Tensor) -> Tensor:
    """Channels first in name, and still last in memory."""
    return images.permute(0, 3, 1, 2)


def _last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous()
