"""Batch normalisation, 2 x 2 max pooling and leaky ReLU as one operation.

With z the input, n the number of values per channel, mu their mean, r = 1 / sqrt(var + eps),
xhat = (z - mu) r and y = gamma xhat + beta, the output is a = s y at the place that the pool
selects in every window, where s is 1 or the slope of the leaky ReLU, which commutes with the
maximum. P takes the selected places, P' puts values back there, xs = P xhat. Pooling looks for
the largest gamma z, so it needs no statistics, and everything but z lives at a quarter of its
size.

    backward    u = s da,  S1 = sum u,  S2 = sum u xs;  dbeta = S1,  dgamma = S2,
                dz = gamma r q   with   q = P'u - S1/n - xhat S2/n.

Dots are derivatives in the direction (zdot, gammadot, betadot), m1 = mean zdot and
m2 = mean (zdot xhat):

    tangent     rdot = -r r m2,   xhatdot = r (zdot - m1 - xhat m2),
                adot = s (gammadot xs + gamma P xhatdot + betadot).
    of backward udot = s dadot,  S1dot = sum udot,  S2dot = sum (udot xs + u P xhatdot),
                dzdot = gamma r qdot + c q   with   c = gammadot r - gamma r r m2   and
                qdot = P'udot - S1dot/n - xhatdot S2/n - xhat S2dot/n.
                Sorted by what varies over the image, dzdot is P'w + k0 + k1 xhat + k2 zdot:
                w  = gamma r udot + c u,
                k0 = -(gamma r S1dot + c S1 - gamma r r m1 S2) / n,
                k1 = -(gamma r S2dot + c S2 - gamma r r m2 S2) / n,
                k2 = -gamma r r S2 / n.

The second derivative of an operation in reverse is made of these two: with v the gradient in
(dz, dgamma, dbeta), the gradient in da is the tangent in the direction v, and the gradient in
(z, gamma, beta) is the tangent of the backward pass there, with dadot = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.errors import ConfigError
from alfa.ops import _compiled as compiled

EPS = 1e-5


def norm_pool_act(z: Tensor, gamma: Tensor, beta: Tensor, *, slope: float = 0.01) -> Tensor:
    """Leaky ReLU of the 2 x 2 max pool of the batch norm of z; can be differentiated twice.

    The statistics are those of the batch at hand. Channels are independent of each other, so
    tasks can lie side by side as channels.

    Args:
        z: ``[example, channel, height, width]``, fastest in channels-last layout.
        gamma: ``[channel]``.
        beta: ``[channel]``.
        slope: of the leaky ReLU, from 0 to 1.

    Returns:
        ``[example, channel, height // 2, width // 2]``.

    Raises:
        ConfigError: there is only one value per channel, or no window to pool.
    """
    num_examples, _, height, width = z.shape
    if height < 2 or width < 2:
        raise ConfigError(
            f"images of {height} x {width} are too small for another 2 x 2 pooling; use larger "
            "images or fewer blocks."
        )
    if num_examples * height * width < 2:
        raise ConfigError(
            "batch normalisation needs more than one value per channel; give it more examples."
        )
    return _Forward.apply(z, gamma, beta, slope)  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class Saved:
    """What the forward pass leaves for the others: z, and the rest small.

    Attributes:
        z: ``[example, height, width, channel]``, as an array or a tensor in that order.
        mean: mu, ``[channel]``.
        scale: r, ``[channel]``.
        xs: xhat at the selected places, ``[example, height // 2, width // 2, channel]``.
        index: the selected place in each window, 0 to 3, of the same shape.
        act: s, of the same shape.
    """

    z: Tensor
    mean: Tensor
    scale: Tensor
    xs: Tensor
    index: Tensor
    act: Tensor

    @property
    def num_values(self) -> int:
        return self.z[..., 0].numel()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.z, self.mean, self.scale, self.xs, self.index, self.act


def forward(z: Tensor, gamma: Tensor, beta: Tensor, slope: float) -> tuple[Tensor, Saved]:
    """The output, channels last, and what the other passes need; z is channels last."""
    selected, index, mean, var = _select(z, gamma)
    scale = (var + EPS).rsqrt()
    xs = (selected - mean) * scale
    y = torch.addcmul(beta, gamma, xs)
    act = torch.where(y > 0, y.new_ones(()), y.new_tensor(slope))
    return y * act, Saved(z, mean, scale, xs, index, act)


def backward(da: Tensor, gamma: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dz, dgamma, dbeta and u, from the gradient in the output."""
    u = da * saved.act
    s1, s2 = u.sum((0, 1, 2)), (u * saved.xs).sum((0, 1, 2))
    factor = gamma * saved.scale
    num = saved.num_values
    dz = _spread(saved, -factor * s1 / num, -factor * s2 / num, u * factor)
    return dz, s2, s1, u


def tangent(
    zdot: Tensor, gammadot: Tensor, betadot: Tensor, gamma: Tensor, saved: Saved
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """adot, and what `backward_tangent` needs: m1, m2 and P xhatdot."""
    selected, m1, m2 = _sums_of_tangent(zdot, saved)
    xsdot = saved.scale * (selected - m1 - saved.xs * m2)
    adot = saved.act * (gammadot * saved.xs + gamma * xsdot + betadot)
    return adot, (m1, m2, xsdot)


def backward_tangent(
    dadot: Tensor | None,
    u: Tensor,
    zdot: Tensor,
    gammadot: Tensor,
    gamma: Tensor,
    saved: Saved,
    from_tangent: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives of dz, dgamma and dbeta in the direction of the tangent."""
    m1, m2, xsdot = from_tangent
    r, num = saved.scale, saved.num_values
    s1, s2 = u.sum((0, 1, 2)), (u * saved.xs).sum((0, 1, 2))
    s1dot, s2dot = torch.zeros_like(s1), (u * xsdot).sum((0, 1, 2))
    c = gammadot * r - gamma * r * r * m2
    w = c * u
    if dadot is not None:
        udot = dadot * saved.act
        s1dot = udot.sum((0, 1, 2))
        s2dot = s2dot + (udot * saved.xs).sum((0, 1, 2))
        w = torch.addcmul(w, gamma * r, udot)
    k0 = -(gamma * r * s1dot + c * s1 - gamma * r * r * m1 * s2) / num
    k1 = -(gamma * r * s2dot + c * s2 - gamma * r * r * m2 * s2) / num
    k2 = -gamma * r * r * s2 / num
    return _spread(saved, k0, k1, w, zdot=zdot, k2=k2), s2dot, s1dot


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, gamma: Tensor, beta: Tensor, slope: float) -> Tensor:
        a, saved = forward(_channels_last(z), gamma, beta, slope)
        ctx.save_for_backward(z, gamma, *saved.tensors())
        return a.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, da: Tensor) -> tuple[Tensor | None, ...]:
        dz, dgamma, dbeta = _Backward.apply(da, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return dz, dgamma, dbeta, None


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, da: Tensor, z: Tensor, gamma: Tensor, *tensors: Tensor) -> Any:
        saved = Saved(*tensors)
        dz, dgamma, dbeta, u = backward(_channels_last(da), gamma, saved)
        ctx.save_for_backward(gamma, u, *tensors)
        return dz.permute(0, 3, 1, 2), dgamma, dbeta

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, zdot: Tensor, gammadot: Tensor, betadot: Tensor
    ) -> tuple[Tensor | None, ...]:
        gamma, u, *tensors = ctx.saved_tensors
        saved = Saved(*tensors)
        zdot = _channels_last(zdot)
        adot, from_tangent = tangent(zdot, gammadot, betadot, gamma, saved)
        dz, dgamma, _ = backward_tangent(None, u, zdot, gammadot, gamma, saved, from_tangent)
        last = (None,) * len(tensors)
        return (adot.permute(0, 3, 1, 2), dz.permute(0, 3, 1, 2), dgamma, *last)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.permute(0, 2, 3, 1).contiguous()


def _windows(tensor: Tensor) -> Tensor:
    """``[example, height // 2, width // 2, channel, 4]``, a copy."""
    num_examples, height, width, num_channels = tensor.shape
    even = tensor[:, : height // 2 * 2, : width // 2 * 2]
    split = even.reshape(num_examples, height // 2, 2, width // 2, 2, num_channels)
    return split.permute(0, 1, 3, 5, 2, 4).flatten(4)


def _use_kernels(tensor: Tensor) -> bool:
    return compiled.worth_it(tensor, work=0)


def _select(z: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Selected z, the places, mean and variance."""
    num_examples, height, width, num_channels = z.shape
    sign = torch.where(gamma < 0, -torch.ones_like(gamma), torch.ones_like(gamma))
    if not _use_kernels(z):
        windows = _windows(z)
        index = (windows * sign[:, None]).argmax(-1, keepdim=True)
        selected = windows.gather(-1, index).squeeze(-1)
        var, mean = torch.var_mean(z, (0, 1, 2), correction=0)
        return selected, index.squeeze(-1).to(torch.uint8), mean, var
    pooled = (num_examples, height // 2, width // 2, num_channels)
    selected, index = z.new_empty(pooled), torch.empty(pooled, dtype=torch.uint8)
    kernels = compiled.norm_kernels()
    sums = np.empty((kernels.PARTS, 2, num_channels))
    # Sums of squares are taken around a value of the channel, or they would cancel.
    shift = z[0, 0, 0]
    kernels.select(*compiled.arrays(z, sign, shift), sums, *compiled.arrays(selected, index))
    first, second = sums.sum(0) / (num_examples * height * width)
    mean = torch.from_numpy(first + shift.detach().double().numpy())
    var = torch.from_numpy(np.maximum(second - first * first, 0))
    return selected, index, mean.to(z.dtype), var.to(z.dtype)


def _sums_of_tangent(zdot: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor]:
    """zdot at the selected places, m1 and m2."""
    z, mean, scale = saved.z, saved.mean, saved.scale
    if not _use_kernels(z):
        index = saved.index.long().unsqueeze(-1)
        selected = _windows(zdot).gather(-1, index).squeeze(-1)
        return selected, zdot.mean((0, 1, 2)), (zdot * ((z - mean) * scale)).mean((0, 1, 2))
    selected = torch.empty_like(saved.xs)
    kernels = compiled.norm_kernels()
    sums = np.empty((kernels.PARTS, 2, len(mean)))
    kernels.sums_of_tangent(
        *compiled.arrays(z, zdot, mean, scale, saved.index), sums, *compiled.arrays(selected)
    )
    m1, m2 = torch.from_numpy(sums.sum(0) / saved.num_values).to(z.dtype)
    return selected, m1, m2


def _spread(
    saved: Saved,
    k0: Tensor,
    k1: Tensor,
    w: Tensor,
    *,
    zdot: Tensor | None = None,
    k2: Tensor | None = None,
) -> Tensor:
    """P'w + k0 + k1 xhat, and + k2 zdot where there is one."""
    z, mean, scale = saved.z, saved.mean, saved.scale
    if _use_kernels(z):
        out = torch.empty_like(z)
        kernels = compiled.norm_kernels()
        ends = compiled.arrays(w, saved.index, out)
        if zdot is None or k2 is None:
            kernels.spread(*compiled.arrays(z, mean, scale, k0, k1), *ends)
        else:
            kernels.spread_with_tangent(*compiled.arrays(z, zdot, mean, scale, k0, k1, k2), *ends)
        return out
    out = k0 + k1 * ((z - mean) * scale)
    if zdot is not None and k2 is not None:
        out = out + k2 * zdot
    num_examples, height, width, num_channels = z.shape
    put = w.new_zeros(*w.shape, 4).scatter(-1, saved.index.long().unsqueeze(-1), w.unsqueeze(-1))
    windows = put.unflatten(-1, (2, 2)).permute(0, 1, 4, 2, 5, 3)
    even = windows.reshape(num_examples, height // 2 * 2, width // 2 * 2, num_channels)
    out[:, : height // 2 * 2, : width // 2 * 2] += even
    return out
