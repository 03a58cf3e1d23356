"""Batch normalisation, max pooling and leaky ReLU as one operation.

With z the input, mu the mean of a channel, r = 1 / sqrt(var + eps), xhat = (z - mu) r and
y = gamma xhat + beta, the output is a = s y at the place that the pool selects in every window,
where s is 1 or the slope of the leaky ReLU, which commutes with the maximum. P takes the selected
places, P' puts values back there, xs = P xhat. Pooling looks for the largest gamma z, so it needs
no statistics, and everything but z lives at the size of the pooled map. A window of one place
makes it a normalisation without pooling, a slope of 1 one without activation.

The statistics are of the n values of a channel in the first `own` examples, which are all of
them, or, where queries are normalised as the support set is, the support set. [own] is 1 there.

    backward    u = s da,  S1 = sum u,  S2 = sum u xs;  dbeta = S1,  dgamma = S2,
                dz = gamma r q   with   q = P'u - [own] (S1 + xhat S2) / n.

Dots are derivatives in the direction (zdot, gammadot, betadot); m1 and m2 are the means of zdot
and zdot xhat over the own examples:

    tangent     rdot = -r r m2,   xhatdot = r (zdot - m1 - xhat m2),
                adot = s (gammadot xs + gamma P xhatdot + betadot).
    of backward udot = s dadot,  S1dot = sum udot,  S2dot = sum (udot xs + u P xhatdot),
                where the last part is r (sum (u P zdot) - m1 S1 - m2 S2), and
                dzdot = gamma r qdot + c q   with   c = gammadot r - gamma r r m2   and
                qdot = P'udot - [own] (S1dot + xhatdot S2 + xhat S2dot) / n.
                Sorted by what varies over the image, dzdot is P'w + [own] (k0 + k1 xhat + k2 zdot):
                w  = gamma r udot + c u,
                k0 = -(gamma r S1dot + c S1 - gamma r r m1 S2) / n,
                k1 = -(gamma r S2dot + c S2 - gamma r r m2 S2) / n,
                k2 = -gamma r r S2 / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops import _compiled as compiled

EPS = 1e-5


class Saved(NamedTuple):
    """What the forward pass leaves for the others.

    Attributes:
        z: ``[example, height, width, channel]``.
        a: the output, channels last too; where there is no activation, `zs`, as nobody asks.
        zs: z at the selected places, of the shape of the output; z itself without pooling.
        places: the selected one in each window, of that shape; empty without pooling.
        mean: mu, ``[channel]``.
        scale: r, ``[channel]``.
    """

    z: Tensor
    a: Tensor
    zs: Tensor
    places: Tensor
    mean: Tensor
    scale: Tensor


class NormPoolAct(NamedTuple):
    """The operation, and its four passes; activations are channels last.

    Attributes:
        size: the side of a pooling window, 1 for none.
        slope: of the leaky ReLU from 0 to 1, which is none.
        own: how many examples the statistics are taken of, from the first; None for all.
    """

    size: int = 2
    slope: float = 0.01
    own: int | None = None

    def check(self, num_examples: int, height: int, width: int) -> None:
        """Refuse what cannot be pooled or normalised."""
        _check_windows(height, width, self.size)
        if self.own is not None and not 1 <= self.own <= num_examples:
            raise ConfigError(
                f"`own` is {self.own}, but there are {num_examples} examples to take statistics of."
            )
        if (self.own or num_examples) * height * width < 2:
            raise ConfigError(
                "batch normalisation needs more than one value per channel, but got one example "
                f"of {height} x {width}; give it more examples or larger images."
            )

    def forward(self, z: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Saved]:
        """The output, and what the other passes need."""
        self.check(*z.shape[:3])
        if _use_kernels(z):
            zs, places = _empty_pooled(z, self.size)
            mean, scale, a = torch.empty_like(gamma), torch.empty_like(gamma), torch.empty_like(zs)
            compiled.norm_kernels().forward(
                *self._given(z, gamma, beta),
                _number(self.slope, z),
                EPS,
                *compiled.arrays(mean, scale),
                *_rows(zs, places, a),
            )
            return a, self._saved(z, a, zs, places, mean, scale)
        # Where gamma is 0 all values of a window are equal, and the first counts.
        zs, places = _pooled(z, self.size, gamma.sign())
        var, mean = torch.var_mean(z[: self.own], (0, 1, 2), correction=0)
        scale = (var + EPS).rsqrt()
        y = gamma * ((zs - mean) * scale) + beta
        a = torch.where(y > 0, y, y * self.slope)
        return a, self._saved(z, a, zs, places, mean, scale)

    def backward(self, da: Tensor, gamma: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor]:
        """dz, S1 = dbeta and S2 = dgamma, from the gradient in the output."""
        if _use_kernels(da):
            dz, s1, s2 = torch.empty_like(saved.z), torch.empty_like(gamma), torch.empty_like(gamma)
            compiled.norm_kernels().backward(
                *self._given(saved.z, gamma),
                *_rows(da, saved.a, saved.zs, saved.places),
                *compiled.arrays(saved.mean, saved.scale),
                _number(self.slope, da),
                *compiled.arrays(dz, s1, s2),
            )
            return dz, s1, s2
        s1, s2 = self._sums(da, saved)
        factor, num = gamma * saved.scale, self._num_values(saved)
        return self._spread(saved, -factor * s1 / num, -factor * s2 / num, factor * da), s1, s2

    def tangent(
        self,
        zdot: Tensor,
        gammadot: Tensor,
        betadot: Tensor,
        da: Tensor,
        gamma: Tensor,
        saved: Saved,
    ) -> tuple[Tensor, Tensor]:
        """adot, and what `backward_tangent` needs: m1, m2 and the sum of u P zdot."""
        if _use_kernels(zdot):
            adot, moments = torch.empty_like(saved.zs), zdot.new_empty(3, len(gamma))
            compiled.norm_kernels().tangent(
                *compiled.arrays(saved.z, zdot),
                *self._given(saved.z, gamma, gammadot, betadot)[1:],
                *_rows(da, saved.a, saved.zs, saved.places),
                *compiled.arrays(saved.mean, saved.scale),
                _number(self.slope, zdot),
                *compiled.arrays(moments),
                *_rows(adot),
            )
            return adot, moments
        own, xs = self.own, self._xs(saved)
        selected = _selected(zdot, saved.places, self.size)
        xhat = (saved.z[:own] - saved.mean) * saved.scale
        m1, m2 = zdot[:own].mean((0, 1, 2)), (zdot[:own] * xhat).mean((0, 1, 2))
        s = self._slopes(saved)
        xsdot = saved.scale * (selected - m1 - xs * m2)
        adot = s * (gammadot * xs + gamma * xsdot + betadot)
        return adot, torch.stack([m1, m2, (s * da * selected).sum((0, 1, 2))])

    def backward_tangent(
        self,
        dadot: Tensor | None,
        da: Tensor,
        zdot: Tensor,
        gammadot: Tensor,
        gamma: Tensor,
        saved: Saved,
        sums: Sequence[Tensor],
        moments: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The derivatives of dz, S1 and S2 in the direction of the tangent."""
        if _use_kernels(zdot):
            dzdot = torch.empty_like(saved.z)
            s1dot, s2dot = torch.empty_like(gamma), torch.empty_like(gamma)
            compiled.norm_kernels().backward_tangent(
                *compiled.arrays(saved.z, zdot),
                *self._given(saved.z, gamma, gammadot)[1:],
                *_rows(da, dadot, saved.a, saved.zs, saved.places),
                *compiled.arrays(saved.mean, saved.scale),
                _number(self.slope, zdot),
                *compiled.arrays(moments, *sums, dzdot, s1dot, s2dot),
            )
            return dzdot, s1dot, s2dot
        (m1, m2, sum_u_zdot), (s1, s2) = moments, sums
        r, num = saved.scale, self._num_values(saved)
        s1dot, s2dot = torch.zeros_like(s1), r * (sum_u_zdot - m1 * s1 - m2 * s2)
        c = gammadot * r - gamma * r * r * m2
        w = c * da
        if dadot is not None:
            s1dot, more = self._sums(dadot, saved)
            s2dot, w = s2dot + more, w + gamma * r * dadot
        k0 = -(gamma * r * s1dot + c * s1 - gamma * r * r * m1 * s2) / num
        k1 = -(gamma * r * s2dot + c * s2 - gamma * r * r * m2 * s2) / num
        k2 = -gamma * r * r * s2 / num
        return self._spread(saved, k0, k1, w, zdot=zdot, k2=k2), s1dot, s2dot

    def _given(self, z: Tensor, *vectors: Tensor) -> list[Any]:
        """What the kernels take first: the image, size, own, and vectors of one per channel."""
        return [*compiled.arrays(z), self.size, self.own or len(z), *compiled.arrays(*vectors)]

    def _num_values(self, saved: Saved) -> int:
        """n"""
        num_examples, height, width, _ = saved.z.shape
        return (self.own or num_examples) * height * width

    def _saved(self, z: Tensor, a: Tensor, zs: Tensor, *rest: Tensor) -> Saved:
        return Saved(z, zs if self.slope == 1 else a, zs, *rest)

    def _xs(self, saved: Saved) -> Tensor:
        """xs"""
        return (saved.zs - saved.mean) * saved.scale

    def _slopes(self, saved: Saved) -> Tensor:
        """s"""
        return torch.where(saved.a > 0, saved.a.new_ones(()), saved.a.new_tensor(self.slope))

    def _sums(self, da: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        """S1 and S2."""
        u = self._slopes(saved) * da
        return u.sum((0, 1, 2)), (u * self._xs(saved)).sum((0, 1, 2))

    def _spread(
        self,
        saved: Saved,
        k0: Tensor,
        k1: Tensor,
        w: Tensor,
        *,
        zdot: Tensor | None = None,
        k2: Tensor | None = None,
    ) -> Tensor:
        """P'(s w) + [own] (k0 + k1 xhat + k2 zdot)."""
        own = self.own
        image = _put_back(self._slopes(saved) * w, saved.places, saved.z.shape, self.size)
        image[:own] += k0 + k1 * ((saved.z[:own] - saved.mean) * saved.scale)
        if zdot is not None and k2 is not None:
            image[:own] += k2 * zdot[:own]
        return image


class PoolSaved(NamedTuple):
    """What `PoolAct.forward` leaves: the output, the selected places, and the image's shape."""

    a: Tensor
    places: Tensor
    shape: torch.Size


class PoolAct(NamedTuple):
    """ReLU and max pooling alone; away from ties both are linear, so two passes are enough.

    Attributes:
        size: the side of a window.
        padding: of zeros around the image, which change nothing but the number of windows.
    """

    size: int = 2
    padding: int = 0

    def forward(self, y: Tensor) -> tuple[Tensor, PoolSaved]:
        """The output, and what the other passes need."""
        y = self._padded(y)
        _check_windows(y.shape[1], y.shape[2], self.size)
        if _use_kernels(y):
            selected, places = _empty_pooled(y, self.size)
            kernels, ones = compiled.norm_kernels(), y.new_ones(y.shape[-1]).numpy()
            sums = np.empty((kernels.PARTS, 2, len(ones)))
            image = compiled.array(y)
            kernels.select(image, self.size, 0, ones, ones, sums, *_rows(selected, places))
        else:
            selected, places = _pooled(y, self.size)
        a = selected.relu()
        return a, PoolSaved(a, places, y.shape)

    def backward(self, da: Tensor, saved: PoolSaved) -> Tensor:
        """The gradient in the input; of the tangent of the output gradient, its tangent."""
        image = _put_back(da * (saved.a > 0), saved.places, saved.shape, self.size)
        _, height, width, _ = saved.shape
        p = self.padding
        return image[:, p : height - p, p : width - p].contiguous()

    def tangent(self, ydot: Tensor, saved: PoolSaved) -> Tensor:
        """The tangent of the output."""
        return _selected(self._padded(ydot), saved.places, self.size) * (saved.a > 0)

    def _padded(self, y: Tensor) -> Tensor:
        p = self.padding
        return torch.nn.functional.pad(y, (0, 0, p, p, p, p)) if p else y


def _check_windows(height: int, width: int, size: int) -> None:
    if height < size or width < size:
        raise ConfigError(
            f"images of {height} x {width} are too small for another {size} x {size} "
            "pooling; use larger images or fewer blocks."
        )


def _use_kernels(tensor: Tensor) -> bool:
    return compiled.worth_it(tensor, work=0)


def _empty_pooled(image: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Where the selected values and their places go; without pooling all are selected."""
    if size == 1:
        return image, image.new_empty(0, image.shape[-1], dtype=torch.uint8)
    num_examples, height, width, num_channels = image.shape
    shape = (num_examples, height // size, width // size, num_channels)
    return image.new_empty(shape), image.new_empty(shape, dtype=torch.uint8)


def _number(value: float, like: Tensor) -> Any:
    """Of the type of the tensor, or the kernels would compute in double precision."""
    return np.float32(value) if like.dtype == torch.float32 else value


def _rows(*tensors: Tensor | None) -> list[Any]:
    """``[row, channel]``, the arrays to read from or to write to."""
    return [
        None if tensor is None else compiled.array(tensor).reshape(-1, tensor.shape[-1])
        for tensor in tensors
    ]


def _pooled(image: Tensor, size: int, sign: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The largest sign * value of every window and its place, by torch."""
    if size == 1:
        return _empty_pooled(image, size)
    windows = _windows(image, size)
    places = (windows if sign is None else windows * sign[:, None]).argmax(-1).byte()
    return _selected(image, places, size), places


def _windows(image: Tensor, size: int) -> Tensor:
    """``[example, height // size, width // size, channel, size * size]``, a copy."""
    num_examples, height, width, num_channels = image.shape
    whole = image[:, : height // size * size, : width // size * size]
    split = whole.reshape(num_examples, height // size, size, width // size, size, num_channels)
    return split.permute(0, 1, 3, 5, 2, 4).flatten(4)


def _selected(image: Tensor, places: Tensor, size: int) -> Tensor:
    """P: the values at the selected places."""
    if size == 1:
        return image
    return _windows(image, size).gather(-1, places.long().unsqueeze(-1)).squeeze(-1)


def _put_back(values: Tensor, index: Tensor, shape: torch.Size, size: int) -> Tensor:
    """P': an image of zeros with the values at the selected places."""
    if size == 1:
        return values.clone()
    num_examples, height, width, num_channels = shape
    put = values.new_zeros(*values.shape, size * size)
    put.scatter_(-1, index.long().unsqueeze(-1), values.unsqueeze(-1))
    windows = put.unflatten(-1, (size, size)).permute(0, 1, 4, 2, 5, 3)
    image = values.new_zeros(shape)
    whole = (num_examples, height // size * size, width // size * size, num_channels)
    image[:, : whole[1], : whole[2]] = windows.reshape(whole)
    return image
