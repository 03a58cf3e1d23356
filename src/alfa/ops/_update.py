"""The inner update (Eq. 4) and the learning state, over all layers at once.

With small networks the number of operations, not the arithmetic, is what an inner step costs.
There, one product with a matrix of zeros and ones gathers or spreads the values of all layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from alfa.types import Layers, Params, Rates

# Entries of that matrix beyond which working layer by layer is faster.
_LARGEST_MATRIX = 1_000_000


def layer_means(params: Params) -> Tensor:
    """The mean of every layer, task by task, ``[task, layer]``.

    A value that is not finite in one layer can make the means of others so too.
    """
    flat, layers = params.flat, params.layers
    if _small(layers):
        return flat @ layers.averages(flat.device, flat.dtype)
    return torch.stack([part.mean(1) for part in flat.split(layers.sizes, dim=1)], dim=1)


def spread(values: Tensor, layers: Layers) -> Tensor:
    """Repeat layer-wise values to the dimensions of the layers (section 3.3).

    Args:
        values: broadcasts to ``[..., layer]``.
        layers: the layers.

    Returns:
        What broadcasts to ``[..., size]``, one value for each parameter.
    """
    if values.ndim == 0 or values.shape[-1] == 1:
        return values
    if _small(layers):
        return values @ layers.membership(values.device, values.dtype)
    return values.index_select(-1, layers.index(values.device))


def apply_rates(params: Params, grads: Params, rates: Rates) -> Params:
    """One step of the inner loop, theta' = beta * theta - alpha * grad (Eq. 4).

    Args:
        params: theta_{i,j} of every task.
        grads: the gradient of each task's support loss there.
        rates: alpha and beta, layer-wise or element-wise.
    """
    alpha, beta = rates.alpha, rates.beta
    if isinstance(alpha, Tensor) and isinstance(beta, Tensor) and not _small(params.layers):
        return params.like(_layer_by_layer(params, grads, alpha, beta))
    alpha, beta = _element_wise(alpha, params), _element_wise(beta, params)
    return params.like(beta * params.flat - alpha * grads.flat)


def _layer_by_layer(params: Params, grads: Params, alpha: Tensor, beta: Tensor) -> Tensor:
    """The same without a rate for each of many parameters, which autograd would have to keep."""
    num_layers = len(params.layers)
    alphas, betas = (
        torch.atleast_2d(rate).expand(-1, num_layers).split(1, dim=1) for rate in (alpha, beta)
    )
    thetas, gs = (rows.flat.split(params.layers.sizes, dim=1) for rows in (params, grads))
    layers = zip(alphas, betas, thetas, gs, strict=True)
    return torch.cat([b * theta - a * g for a, b, theta, g in layers], dim=1)


def _small(layers: Layers) -> bool:
    return len(layers) * int(layers.bounds[-1]) <= _LARGEST_MATRIX


def _element_wise(rate: Tensor | Mapping[str, Tensor], params: Params) -> Tensor:
    """A rate for each parameter, which broadcasts to ``[task, size]``."""
    if isinstance(rate, Tensor):
        return spread(rate, params.layers)
    if isinstance(rate, Params):
        return rate.flat
    rates = [rate[name].expand_as(params[name]) for name in params]
    return torch.cat([tensor.reshape(params.num_tasks, -1) for tensor in rates], dim=1)
