"""The inner update (Eq. 4) and the learning state, over all layers at once.

The number of operations dominates the cost. With small networks, one product with a matrix of zeros
and ones reduces or expands the values of all layers; with larger networks, a compiled loop does so,
or torch layer by layer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.errors import ConfigError
from alfa.ops import _compiled as compiled
from alfa.types import Layers, Params, Rates

# Beyond this many entries in that matrix, the alternatives are faster.
_LARGEST_MATRIX = 200_000


def layer_means(params: Params) -> Tensor:
    """Return the mean of every layer, ``[task, layer]``.

    A non-finite value in one layer can make the means of other layers non-finite, too.
    """
    flat, layers = params.flat, params.layers
    if _small(layers):
        return flat @ layers.averages(flat.device, flat.dtype)
    if compiled.use_kernels(flat):
        return _Means.apply(flat, layers, False)  # type: ignore[no-any-return, no-untyped-call]
    parts = flat.split(layers.sizes, dim=1)
    return torch.stack([part.sum(1) / max(part.shape[1], 1) for part in parts], dim=1)


def expand_to_parameters(values: Tensor, layers: Layers) -> Tensor:
    """Repeat ``[..., layer]`` values over their layers, to ``[..., size]`` (section 3.3)."""
    if values.ndim == 0 or values.shape[-1] == 1:
        return values
    if _small(layers):
        return values @ layers.membership(values.device, values.dtype)
    return values.index_select(-1, layers.index(values.device))


def apply_rates(params: Params, grads: Params, rates: Rates) -> Params:
    """Return theta' = beta * theta - alpha * direction (Eq. 4).

    The direction is the gradient unless the rates contain another one. Raises ConfigError if a rate
    or the direction does not fit these tasks and layers.
    """
    alpha, beta, direction = rates.alpha, rates.beta, rates.direction
    if direction is None:
        direction = grads
    elif not _has_same_layers(direction, params) or direction.flat.shape != params.flat.shape:
        found = (
            f"{dict(direction.layers)} with {list(direction.flat.shape)}"
            if isinstance(direction, Params)
            else repr(direction)
        )
        raise ConfigError(
            f"the direction must be a Params with the layers {dict(params.layers)} and values "
            f"{list(params.flat.shape)}, got {found}; make it with `grads.like(values)`."
        )
    _check_rate("alpha", alpha, params)
    _check_rate("beta", beta, params)
    if isinstance(alpha, Tensor) and isinstance(beta, Tensor) and not _small(params.layers):
        return params.like(_update_by_layer(params, direction, alpha, beta))
    alpha, beta = _element_wise(alpha, params), _element_wise(beta, params)
    return params.like(beta * params.flat - alpha * direction.flat)


def _check_rate(name: str, rate: object, params: Params) -> None:
    shape: Sequence[int] = params.num_tasks, len(params.layers)
    if isinstance(rate, Tensor):
        given = [(name, rate, shape)]
    elif _has_same_layers(rate, params):
        given = [(name, rate.flat, params.flat.shape)]
    elif isinstance(rate, Mapping):
        if missing := [layer for layer in params if layer not in rate]:
            raise ConfigError(
                f"{name} has no rate for {', '.join(missing)}; a rule must return a rate for every "
                "adapted layer."
            )
        given = [(f"{name} of {layer}", rate[layer], params[layer].shape) for layer in params]
    else:
        raise ConfigError(
            f"{name} is {rate!r}, but a rule must return tensors: one that broadcasts to [task, "
            f"layer], here {list(shape)}, or a mapping with one for each layer."
        )
    for whose, tensor, shape in given:
        if not isinstance(tensor, Tensor):
            raise ConfigError(f"{whose} is {tensor!r}, but a rule must return tensors.")
        if not _broadcasts(tensor.shape, shape):
            raise ConfigError(
                f"{whose} has the shape {list(tensor.shape)}, which does not broadcast to "
                f"{list(shape)}: rates are [task, layer], or a mapping with each layer's shape."
            )


def _has_same_layers(rate: object, params: Params) -> TypeGuard[Params]:
    """Return whether a rate has one value for each parameter, in the same order."""
    return isinstance(rate, Params) and rate.layers == params.layers


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    if tuple(shape) == tuple(to):
        return True
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in pairs)


def _update_by_layer(params: Params, grads: Params, alpha: Tensor, beta: Tensor) -> Tensor:
    """Compute Eq. 4 without expanding the rates to all parameters, which autograd would save."""
    layers = params.layers
    alpha, beta = (torch.atleast_2d(rate).expand(-1, len(layers)) for rate in (alpha, beta))
    if compiled.use_kernels(params.flat, grads.flat, alpha, beta):
        alpha, beta = (rate.expand(params.num_tasks, -1) for rate in (alpha, beta))
        return _Update.apply(params.flat, grads.flat, alpha, beta, layers)  # type: ignore[no-any-return, no-untyped-call]
    thetas, gs = (rows.flat.split(layers.sizes, dim=1) for rows in (params, grads))
    parts = zip(alpha.split(1, dim=1), beta.split(1, dim=1), thetas, gs, strict=True)
    return torch.cat([b * theta - a * g for a, b, theta, g in parts], dim=1)


class _Means(torch.autograd.Function):
    """A linear map: its derivative is its transpose, whose derivative is the map again."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, layers: Layers, transposed: bool) -> Tensor:
        ctx.layers, ctx.transposed = layers, transposed
        kernels = compiled.update_kernels()
        run = kernels.means_transposed if transposed else kernels.means
        size = int(layers.bounds[-1]) if transposed else len(layers)
        result = values.new_empty(len(values), size)
        run(*compiled.arrays(values), layers.bounds, *compiled.arrays(result))
        return result

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        return _Means.apply(d, ctx.layers, not ctx.transposed), None, None  # type: ignore[no-untyped-call]


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, grads: Tensor, alpha: Tensor, beta: Tensor, layers: Layers
    ) -> Tensor:
        updated = torch.empty_like(theta, memory_format=torch.contiguous_format)
        given = compiled.arrays(theta, grads, alpha, beta)
        compiled.update_kernels().update(*given, layers.bounds, *compiled.arrays(updated))
        ctx.save_for_backward(theta, grads, alpha, beta)
        ctx.layers = layers
        return updated

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        found = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in saved]
        given, results = compiled.arrays(d, *saved), compiled.arrays(*found)
        compiled.update_kernels().update_backward(*given, ctx.layers.bounds, *results)
        return *found, None


def _small(layers: Layers) -> bool:
    return len(layers) * int(layers.bounds[-1]) <= _LARGEST_MATRIX


def _element_wise(rate: Tensor | Mapping[str, Tensor], params: Params) -> Tensor:
    """Return a rate for each parameter, which broadcasts to ``[task, size]``."""
    if isinstance(rate, Tensor):
        return expand_to_parameters(rate, params.layers)
    if _has_same_layers(rate, params):
        return rate.flat
    rates = [rate[name].expand_as(params[name]) for name in params]
    return torch.cat([tensor.reshape(params.num_tasks, -1) for tensor in rates], dim=1)
