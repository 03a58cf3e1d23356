"""Batch normalization, max pooling, and leaky ReLU as one operation.

With z the input, mu the mean of a channel, r = 1 / sqrt(var + eps), xhat = (z - mu) r, and
y = gamma xhat + beta, the output is a = s y at the place that the pool selects in every window,
where s is 1 or the slope of the leaky ReLU, which commutes with the maximum. P selects these
places, P' puts values back there, and xs = P xhat. Pooling selects the largest gamma z, so it needs
no statistics, and every array except z has the size of the pooled map. A window of one place means
no pooling, and a slope of 1 no activation.

The statistics are those of the n values of a channel in the first `num_norm_examples` examples:
all of them, or the support set if it normalizes the queries too. [norm] is 1 there and 0 elsewhere.

    backward    u = s da,  S1 = sum u,  S2 = sum u xs;  dbeta = S1,  dgamma = S2,
                dz = gamma r q   with   q = P'u - [norm] (S1 + xhat S2) / n.

Dots are derivatives in the direction (zdot, gammadot, betadot); m1 and m2 are the means of zdot
and zdot xhat over these examples:

    tangent     rdot = -r r m2,   xhatdot = r (zdot - m1 - xhat m2),
                adot = s (gammadot xs + gamma P xhatdot + betadot).
    of backward udot = s dadot,  S1dot = sum udot,  S2dot = sum (udot xs + u P xhatdot),
                where the last part is r (sum (u P zdot) - m1 S1 - m2 S2), and
                dzdot = gamma r qdot + c q   with   c = gammadot r - gamma r r m2   and
                qdot = P'udot - [norm] (S1dot + xhatdot S2 + xhat S2dot) / n.
                Sorted by what varies over the image,
                dzdot = P'w + [norm] (k0 + k1 xhat + k2 zdot)   with
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
from alfa.ops._pool import check_windows, empty_pooled, rows, select, torch_max_pool, unpool

EPS = 1e-5


class NormSaved(NamedTuple):
    """The tensors that the forward pass saves for the other passes.

    Attributes:
        z: ``[example, height, width, channel]``.
        a: the output, channels last too; `zs` if there is no activation.
        zs: z at the selected places, of the shape of the output; z itself without pooling.
        places: the selected place in each window, of that shape; empty without pooling.
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
    """The operation and its four passes; activations are channels last.

    Attributes:
        size: the side of a pooling window, 1 for none.
        slope: of the leaky ReLU, from 0 to 1, which means no activation.
        num_norm_examples: number of leading examples used for batch-norm statistics; None for all.
    """

    size: int = 2
    slope: float = 0.01
    num_norm_examples: int | None = None

    def _check(self, num_examples: int, height: int, width: int) -> None:
        check_windows(height, width, self.size)
        if self.num_norm_examples is not None and not 1 <= self.num_norm_examples <= num_examples:
            raise ConfigError(
                f"`num_norm_examples` must be between 1 and {num_examples}, got "
                f"{self.num_norm_examples}."
            )
        if (self.num_norm_examples or num_examples) * height * width < 2:
            raise ConfigError(
                "batch normalization needs more than one value per channel, but got one example "
                f"of {height} x {width}; give it more examples or larger images."
            )

    def forward(self, z: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, NormSaved]:
        """The output, and the tensors that the other passes need."""
        self._check(*z.shape[:3])
        if compiled.use_kernels(z):
            zs, places = empty_pooled(z, self.size)
            mean, scale, a = torch.empty_like(gamma), torch.empty_like(gamma), torch.empty_like(zs)
            saved = NormSaved(z, a, zs, places, mean, scale)
            compiled.norm_kernels().forward(
                *self._common(z, gamma), *compiled.arrays(beta), self._slope(z), EPS, _arrays(saved)
            )
        else:
            # If gamma is 0, all values of a window are equal, and the first is selected.
            zs, places = torch_max_pool(z, self.size, gamma.sign())
            var, mean = torch.var_mean(z[: self.num_norm_examples], (0, 1, 2), correction=0)
            scale = (var + EPS).rsqrt()
            y = gamma * ((zs - mean) * scale) + beta
            a = torch.where(y > 0, y, y * self.slope)
            saved = NormSaved(z, a, zs, places, mean, scale)
        return a, saved._replace(a=zs) if self.slope == 1 else saved

    def backward(
        self, da: Tensor, gamma: Tensor, saved: NormSaved
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dz, S1 = dbeta, and S2 = dgamma."""
        if compiled.use_kernels(da):
            dz, s1, s2 = torch.empty_like(saved.z), torch.empty_like(gamma), torch.empty_like(gamma)
            compiled.norm_kernels().backward(
                *self._common(saved.z, gamma),
                *rows(da),
                _arrays(saved),
                self._slope(da),
                *compiled.arrays(dz, s1, s2),
            )
            return dz, s1, s2
        s1, s2 = self._sums(da, saved)
        factor, num = gamma * saved.scale, self._num_values(saved)
        dz = self._input_gradient(saved, -factor * s1 / num, -factor * s2 / num, factor * da)
        return dz, s1, s2

    def tangent(
        self,
        zdot: Tensor,
        gammadot: Tensor,
        betadot: Tensor,
        da: Tensor,
        gamma: Tensor,
        saved: NormSaved,
    ) -> tuple[Tensor, Tensor]:
        """adot, and the moments for `backward_tangent`: m1, m2, and the sum of u P zdot."""
        if compiled.use_kernels(zdot):
            adot, moments = torch.empty_like(saved.zs), zdot.new_empty(3, len(gamma))
            compiled.norm_kernels().tangent(
                *self._common(saved.z, gamma),
                *compiled.arrays(zdot, gammadot, betadot),
                *rows(da),
                _arrays(saved),
                self._slope(zdot),
                *compiled.arrays(moments),
                *rows(adot),
            )
            return adot, moments
        num_norm, xs = self.num_norm_examples, _xs(saved)
        selected = select(zdot, saved.places, self.size)
        xhat = (saved.z[:num_norm] - saved.mean) * saved.scale
        m1, m2 = zdot[:num_norm].mean((0, 1, 2)), (zdot[:num_norm] * xhat).mean((0, 1, 2))
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
        saved: NormSaved,
        sums: Sequence[Tensor],
        moments: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The derivatives of dz, S1, and S2 in the direction of the tangent."""
        if compiled.use_kernels(zdot):
            dzdot = torch.empty_like(saved.z)
            s1dot, s2dot = torch.empty_like(gamma), torch.empty_like(gamma)
            compiled.norm_kernels().backward_tangent(
                *self._common(saved.z, gamma),
                *compiled.arrays(zdot, gammadot),
                *rows(da, dadot),
                _arrays(saved),
                self._slope(zdot),
                *compiled.arrays(moments, *sums),
                tuple(compiled.arrays(dzdot, s1dot, s2dot)),
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
        return self._input_gradient(saved, k0, k1, w, zdot=zdot, k2=k2), s1dot, s2dot

    def _common(self, z: Tensor, gamma: Tensor) -> tuple[Any, ...]:
        """The first arguments of every kernel."""
        num_norm = self.num_norm_examples or len(z)
        return compiled.array(z), self.size, num_norm, compiled.array(gamma)

    def _slope(self, like: Tensor) -> Any:
        """In the dtype of the tensor, or the kernels would compute in double precision."""
        return np.float32(self.slope) if like.dtype == torch.float32 else self.slope

    def _num_values(self, saved: NormSaved) -> int:
        """n"""
        num_examples, height, width, _ = saved.z.shape
        return (self.num_norm_examples or num_examples) * height * width

    def _slopes(self, saved: NormSaved) -> Tensor:
        """s"""
        return torch.where(saved.a > 0, saved.a.new_ones(()), saved.a.new_tensor(self.slope))

    def _sums(self, da: Tensor, saved: NormSaved) -> tuple[Tensor, Tensor]:
        """S1 and S2."""
        u = self._slopes(saved) * da
        return u.sum((0, 1, 2)), (u * _xs(saved)).sum((0, 1, 2))

    def _input_gradient(
        self,
        saved: NormSaved,
        k0: Tensor,
        k1: Tensor,
        w: Tensor,
        *,
        zdot: Tensor | None = None,
        k2: Tensor | None = None,
    ) -> Tensor:
        """P'(s w) + [norm] (k0 + k1 xhat + k2 zdot)."""
        num_norm = self.num_norm_examples
        image = unpool(self._slopes(saved) * w, saved.places, saved.z.shape, self.size)
        image[:num_norm] += k0 + k1 * ((saved.z[:num_norm] - saved.mean) * saved.scale)
        if zdot is not None and k2 is not None:
            image[:num_norm] += k2 * zdot[:num_norm]
        return image


def _arrays(saved: NormSaved) -> tuple[Any, ...]:
    """The argument `saved` of the kernels."""
    return *rows(saved.a, saved.zs, saved.places), *compiled.arrays(saved.mean, saved.scale)


def _xs(saved: NormSaved) -> Tensor:
    """xs"""
    return (saved.zs - saved.mean) * saved.scale
