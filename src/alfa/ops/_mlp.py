"""A stack of ReLU multilayer perceptrons with hand-written first and second derivatives.

For one task and layers l = 1 ... L:

    forward     a_0 = x,  z_l = a_{l-1} W_l' + b_l,  a_l = m_l z_l  with  m_l = [z_l > 0]
                and  y = z_L.
    backward    d_L = dy,  d_{l-1} = m_{l-1} (d_l W_l);
                dW_l = d_l' a_{l-1},  db_l = sum over examples of d_l.
    twice       with U_l, u_l the gradients in dW_l, db_l, differentiate the scalar
                S = sum_l <U_l, d_l' a_{l-1}> + <u_l, db_l>.
                Its gradient e_l in d_l runs forward:   c_0 = 0,  c_l = m_l e_l,
                    e_l = a_{l-1} U_l' + u_l + c_{l-1} W_l',
                and its gradient f_l in z_l backward:
                    f_{l-1} = m_{l-1} (d_l U_l + f_l W_l),
                where f_L depends on the loss: for the mean squared error over n values,
                dy = 2 (y - t) / n and f_L = 2 e_L / n.
                The gradient in W_l is d_l' c_{l-1} + f_l' a_{l-1}, in b_l the sum of f_l.

The masks are constant wherever the derivative exists.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.ops import _compiled as compiled


def mlp(x: Tensor, theta: Tensor, sizes: Sequence[int]) -> Tensor:
    """Apply linear layers of `sizes` with ReLU between them to ``[task, example, in]``.

    `theta` is ``[task, size]``, each layer's weight ``[out, in]`` and then its bias.
    """
    a, first = x, 0
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        middle, end = first + fan_in * fan_out, first + (fan_in + 1) * fan_out
        weight = theta[:, first:middle].unflatten(1, (fan_out, fan_in))
        a = torch.baddbmm(theta[:, None, middle:end], a, weight.transpose(1, 2))
        if layer < len(sizes) - 2:
            a = a.relu()
        first = end
    return a


def mlp_mse_gradients(
    x: Tensor, targets: Tensor, theta: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Tensor] | None:
    """Return each task's mean squared error, as a constant, and its gradient in `theta`.

    The gradient can be differentiated once. The function replaces dozens of operations, which
    dominate the time of an inner step on a small network; it returns None if autograd is faster.
    """
    size = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))
    fits = x.shape[2] == sizes[0] and targets.shape == (*x.shape[:2], sizes[-1])
    # The kernels do not check bounds; autograd raises a clear error for wrong shapes.
    if not fits or theta.shape != (x.shape[0], size):
        return None
    if not compiled.use_kernels(theta, x, targets, work=theta.numel() * x.shape[1]):
        return None
    return _MSEGradients.apply(theta, x, targets, tuple(sizes))  # type: ignore[no-any-return, no-untyped-call]


class _MSEGradients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, x: Tensor, targets: Tensor, sizes: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        theta = theta.contiguous()
        saved = x.new_empty(x.shape[0], 2 * x.shape[1] * sum(sizes[1:-1]))
        losses, dy = x.new_empty(x.shape[0]), targets.new_empty(targets.shape)
        gradient = torch.empty_like(theta)
        compiled.mlp_kernels().mlp_mse_gradients(
            *compiled.arrays(x, targets, theta),
            np.array(sizes),
            *compiled.arrays(saved, dy, losses, gradient),
        )
        ctx.save_for_backward(x, theta, saved, dy)
        ctx.sizes = sizes
        ctx.mark_non_differentiable(losses)
        return losses, gradient

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, u: Tensor) -> tuple[Tensor | None, ...]:
        x, theta, saved, dy = ctx.saved_tensors
        product = torch.empty_like(theta)
        compiled.mlp_kernels().mlp_mse_hessian_product(
            *compiled.arrays(x, theta),
            np.array(ctx.sizes),
            *compiled.arrays(saved, dy, u, product),
        )
        return product, None, None, None
