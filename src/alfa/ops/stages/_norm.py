"""Batch normalization, max pooling, and leaky ReLU as one stage.

With z the input, mu the mean of a channel, r = 1 / sqrt(var + eps), xhat = (z - mu) r, and
y = gamma xhat + beta, the output is a = s y at the place that the pool selects in every window.
Here s is 1 or the slope of the leaky ReLU, which commutes with the maximum. P selects these places,
P' puts values back there, and xs = P xhat. Pooling selects the largest gamma z, so it needs no
statistics, and every array except z has the size of the pooled map. A window of one place means no
pooling, and a slope of 1 no activation.

The statistics use the n values of a channel in the first `num_norm_examples` examples: all
examples, or the support set if it normalizes the queries too. [norm] is 1 in these examples and 0
in the others.

    backward    u = s da,  S1 = sum u,  S2 = sum u xs;  dbeta = S1,  dgamma = S2,
                dz = gamma r q   with   q = P'u - [norm] (S1 + xhat S2) / n.

Dots are derivatives in the direction (zdot, gammadot, betadot); m1 and m2 are the means of zdot
and zdot xhat over these examples:

    tangent     rdot = -r r m2,   xhatdot = r (zdot - m1 - xhat m2),
                adot = s (gammadot xs + gamma P xhatdot + betadot).
    of backward udot = s dadot,  S1dot = sum udot,  S2dot = sum (udot xs + u P xhatdot),
                whose last part is r (sum (u P zdot) - m1 S1 - m2 S2), and
                dzdot = gamma r qdot + c q   with   c = gammadot r - gamma r r m2   and
                qdot = P'udot - [norm] (S1dot + xhatdot S2 + xhat S2dot) / n.
                Grouped by the factors that vary over the image,
                dzdot = P'w + [norm] (k0 + k1 xhat + k2 zdot)   with
                w  = gamma r udot + c u,
                k0 = -(gamma r S1dot + c S1 - gamma r r m1 S2) / n,
                k1 = -(gamma r S2dot + c S2 - gamma r r m2 S2) / n,
                k2 = -gamma r r S2 / n.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops import _compiled as compiled
from alfa.ops._pool import check_size, check_windows, empty_pooled, select, torch_max_pool, unpool
from alfa.ops.stages._base import Dots, Gradients, Maybe, Stage, Tape

EPS = 1e-5


class _Saved(NamedTuple):
    """The tensors that the forward pass saves for the other passes."""

    z: Tensor  # [example, height, width, channel]
    a: Tensor  # the output; `zs` without an activation
    zs: Tensor  # z at the selected places; z itself without pooling
    places: Tensor  # the selected place in each window; empty without pooling
    mean: Tensor  # mu, [channel]
    scale: Tensor  # r, [channel]

    def xs(self) -> Tensor:
        return (self.zs - self.mean) * self.scale

    def xhat(self, num_norm: int | None) -> Tensor:
        """Return xhat of the examples that give the statistics."""
        return (self.z[:num_norm] - self.mean) * self.scale


@final
class Norm(Stage):
    """Batch norm, max pooling in windows of `size`, 1 for none, and leaky ReLU with a slope.

    A slope of 1 means no activation.
    """

    def __init__(self, name: str, *, size: int = 2, slope: float = 0.01) -> None:
        check_size(size)
        self.names = (f"{name}.weight", f"{name}.bias")
        self.size, self.slope = size, slope

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        self._check(x, tape.num_norm_examples)
        gamma, beta = (p.flatten() for p in tape.w)
        if compiled.use_kernels(x):
            zs, places = empty_pooled(x, self.size)
            mean, scale, a = torch.empty_like(gamma), torch.empty_like(gamma), torch.empty_like(zs)
            saved = _Saved(x, a, zs, places, mean, scale)
            self._run("forward", tape, saved, beta, eps=EPS)
        else:
            # If gamma is 0, all values of a window are equal, and the first is selected.
            zs, places = torch_max_pool(x, self.size, gamma.sign())
            var, mean = torch.var_mean(x[: tape.num_norm_examples], (0, 1, 2), correction=0)
            scale = (var + EPS).rsqrt()
            y = gamma * ((zs - mean) * scale) + beta
            a = torch.where(y > 0, y, y * self.slope)
            saved = _Saved(x, a, zs, places, mean, scale)
        tape.save(*(saved._replace(a=zs) if self.slope == 1 else saved))
        return a

    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        saved, gamma = _Saved(*tape.saved), tape.w[0].flatten()
        if compiled.use_kernels(dy):
            dz, sums = torch.empty_like(saved.z), gamma.new_empty(2, len(gamma))
            self._run("backward", tape, saved, dy, dz, sums)
        else:
            sums = self._sums(dy, saved)
            factor = gamma * saved.scale
            k0, k1 = -factor * sums / _num_values(saved, tape)
            dz = self._input_gradient(saved, tape, k0, k1, factor * dy)
        tape.save_dy(dy, sums)
        return dz, _dw(sums, tape)

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        tape.dots = ()
        if xdot is None and all(dot is None for dot in wdot):
            return None
        saved, (da, _), gamma = _Saved(*tape.saved), tape.dy, tape.w[0].flatten()
        gammadot, betadot = _flat(wdot, tape)
        zdot = torch.zeros_like(saved.z) if xdot is None else xdot
        if compiled.use_kernels(zdot):
            adot, moments = torch.empty_like(saved.zs), zdot.new_empty(3, len(gamma))
            self._run("tangent", tape, saved, zdot, gammadot, betadot, da, moments, adot)
        else:
            num_norm, xs, s = tape.num_norm_examples, saved.xs(), self._slopes(saved)
            selected = select(zdot, saved.places, self.size)
            m1 = zdot[:num_norm].mean((0, 1, 2))
            m2 = (zdot[:num_norm] * saved.xhat(num_norm)).mean((0, 1, 2))
            xsdot = saved.scale * (selected - m1 - xs * m2)
            adot = s * (gammadot * xs + gamma * xsdot + betadot)
            moments = torch.stack([m1, m2, (s * da * selected).sum((0, 1, 2))])
        tape.dots = zdot, moments
        return adot

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        if not tape.dots:
            # The backward pass is linear in dy, so this is its tangent if x and w are constant.
            return (None, [None, None]) if dydot is None else self.backward(dydot, tape)
        saved, gamma = _Saved(*tape.saved), tape.w[0].flatten()
        (da, sums), (zdot, moments) = tape.dy, tape.dots
        gammadot, _ = _flat(wdot, tape)
        if compiled.use_kernels(zdot):
            dzdot, sums_dot = torch.empty_like(saved.z), torch.empty_like(sums)
            given = zdot, gammadot, da, dydot, moments, sums
            self._run("backward_tangent", tape, saved, *given, dzdot, sums_dot)
        else:
            (m1, m2, sum_u_zdot), (s1, s2) = moments, sums
            r, num = saved.scale, _num_values(saved, tape)
            s1dot, s2dot = torch.zeros_like(s1), r * (sum_u_zdot - m1 * s1 - m2 * s2)
            c = gammadot * r - gamma * r * r * m2
            w = c * da
            if dydot is not None:
                s1dot, more = self._sums(dydot, saved)
                s2dot, w = s2dot + more, w + gamma * r * dydot
            k0 = -(gamma * r * s1dot + c * s1 - gamma * r * r * m1 * s2) / num
            k1 = -(gamma * r * s2dot + c * s2 - gamma * r * r * m2 * s2) / num
            k2 = -gamma * r * r * s2 / num
            dzdot = self._input_gradient(saved, tape, k0, k1, w)
            dzdot[: tape.num_norm_examples] += k2 * zdot[: tape.num_norm_examples]
            sums_dot = torch.stack([s1dot, s2dot])
        return dzdot, _dw(sums_dot, tape)

    def _check(self, x: Tensor, num_norm: int | None) -> None:
        num_examples, height, width, _ = x.shape
        check_windows(height, width, self.size)
        if num_norm is not None and not 1 <= num_norm <= num_examples:
            raise ConfigError(
                f"`num_norm_examples` must be between 1 and {num_examples}, got {num_norm}."
            )
        if (num_norm or num_examples) * height * width < 2:
            raise ConfigError(
                "batch normalization needs more than one value per channel, got one example of "
                f"{height} x {width}; use more examples or larger images."
            )

    def _run(self, name: str, tape: Tape, saved: _Saved, *tensors: Maybe, **options: float) -> None:
        """Run a compiled pass, which writes to `saved` or to the last tensors."""
        kernel = getattr(compiled.norm_kernels(), name)
        num_norm = tape.num_norm_examples or len(saved.z)
        arrays = compiled.arrays(tape.w[0].flatten(), *tensors)
        kernel(self.size, num_norm, self.slope, tuple(compiled.arrays(*saved)), *arrays, **options)

    def _slopes(self, saved: _Saved) -> Tensor:
        """Return s."""
        return torch.where(saved.a > 0, saved.a.new_ones(()), saved.a.new_tensor(self.slope))

    def _sums(self, da: Tensor, saved: _Saved) -> Tensor:
        """Return S1 and S2."""
        u = self._slopes(saved) * da
        return torch.stack([u.sum((0, 1, 2)), (u * saved.xs()).sum((0, 1, 2))])

    def _input_gradient(
        self, saved: _Saved, tape: Tape, k0: Tensor, k1: Tensor, w: Tensor
    ) -> Tensor:
        """Return P'(s w) + [norm] (k0 + k1 xhat)."""
        num_norm = tape.num_norm_examples
        image = unpool(self._slopes(saved) * w, saved.places, saved.z.shape, self.size)
        image[:num_norm] += k0 + k1 * saved.xhat(num_norm)
        return image


def _num_values(saved: _Saved, tape: Tape) -> int:
    """Return n."""
    num_examples, height, width, _ = saved.z.shape
    return (tape.num_norm_examples or num_examples) * height * width


def _dw(sums: Tensor, tape: Tape) -> list[Maybe]:
    """Return dgamma = S2 and dbeta = S1."""
    return [sums[1].view_as(tape.w[0]), sums[0].view_as(tape.w[1])]


def _flat(wdot: Dots, tape: Tape) -> list[Tensor]:
    """Return gammadot and betadot of all tasks side by side."""
    pairs = zip(wdot, tape.w, strict=True)
    return [(torch.zeros_like(p) if dot is None else dot).flatten() for dot, p in pairs]
