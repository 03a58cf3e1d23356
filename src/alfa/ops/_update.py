"""The inner update (Eq. 4) and the learning state, over all layers at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.ops import _compiled as compiled
from alfa.types import Layers, Params, Rates


def layer_means(params: Params) -> Tensor:
    """The mean of every layer, task by task, ``[task, layer]``."""
    flat, layers = params.flat, params.layers
    if compiled.worth_it(flat, work=flat.numel()):
        return _LayerMeans.apply(flat, layers)  # type: ignore[no-any-return, no-untyped-call]
    return torch.stack([part.mean(1) for part in flat.split(layers.sizes, dim=1)], dim=1)


def spread(values: Tensor, layers: Layers) -> Tensor:
    """Repeat layer-wise values to the dimensions of the layers (section 3.3).

    Args:
        values: broadcasts to ``[..., layer]``.
        layers: the layers.

    Returns:
        ``[..., size]``, one value for each parameter.
    """
    if values.ndim == 0:
        return values
    values = values.expand(*values.shape[:-1], len(layers))
    return values.index_select(-1, layers.index(values.device))


def apply_rates(params: Params, grads: Params, rates: Rates) -> Params:
    """One step of the inner loop, theta' = beta * theta - alpha * grad (Eq. 4).

    Args:
        params: theta_{i,j} of every task.
        grads: the gradient of each task's support loss there.
        rates: alpha and beta, layer-wise or element-wise.
    """
    alpha, beta = rates.alpha, rates.beta
    if isinstance(alpha, Tensor) and isinstance(beta, Tensor):
        shape = (params.num_tasks, len(params))
        tensors = (alpha.expand(shape), beta.expand(shape), params.flat, grads.flat)
        if compiled.worth_it(*tensors, work=params.flat.numel()):
            return params.like(_Update.apply(*tensors, params.layers))  # type: ignore[no-untyped-call]
    return params.like(
        _element_wise(beta, params) * params.flat - _element_wise(alpha, params) * grads.flat
    )


def _element_wise(rate: Tensor | Mapping[str, Tensor], params: Params) -> Tensor:
    """A rate for each parameter, which broadcasts to ``[task, size]``."""
    if isinstance(rate, Tensor):
        return spread(rate, params.layers)
    if isinstance(rate, Params):
        return rate.flat
    return torch.cat([rate[name].expand_as(params[name]).flatten(1) for name in params], dim=1)


class _LayerMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Tensor, layers: Layers) -> Tensor:
        ctx.layers = layers
        means = flat.new_empty(flat.shape[0], len(layers))
        compiled.kernels().layer_means(*compiled.arrays(flat), layers.bounds, means.numpy())
        return means

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        sizes = grads[0].new_tensor(ctx.layers.sizes)
        return spread(grads[0] / sizes, ctx.layers), None


class _Update(torch.autograd.Function):
    """Forward: theta' = beta theta - alpha g, layer by layer.

    Backward, with v the gradient in theta': beta v in theta, -alpha v in g, and the sums
    over the layer of v theta in beta and of -v g in alpha.
    """

    @staticmethod
    def forward(
        ctx: Any, alpha: Tensor, beta: Tensor, theta: Tensor, grad: Tensor, layers: Layers
    ) -> Tensor:
        ctx.save_for_backward(alpha, beta, theta, grad)
        ctx.layers = layers
        updated = torch.empty_like(grad)
        inputs = compiled.arrays(alpha, beta, theta, grad)
        compiled.kernels().update(*inputs, layers.bounds, updated.numpy())
        return updated

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        alpha, beta, theta, grad = ctx.saved_tensors
        shape = alpha.shape
        outputs = [v.new_empty(shape), v.new_empty(shape), torch.empty_like(v), torch.empty_like(v)]
        compiled.kernels().update_backward(
            *compiled.arrays(alpha, beta, theta, grad, v),
            ctx.layers.bounds,
            *compiled.arrays(*outputs),
        )
        return (*outputs, None)
