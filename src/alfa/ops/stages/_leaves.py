"""The stages that are not made of others."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops._conv import Kernel, Patches, Term, conv, conv_backward, plus
from alfa.ops._norm import NormPoolAct, PoolAct, PoolSaved, Saved
from alfa.ops.stages._base import Maybe, Stage, Tape, enter, leave


class _Moving(Stage):
    """A stage whose parameters can move; where neither they nor x do, dy alone is left.

    The backward pass is linear in dy, so its tangent then is the backward pass of dydot.
    """

    @abc.abstractmethod
    def moved(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        """`tangent`, where not all of it is None; leaves dots."""

    @abc.abstractmethod
    def moved_back(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        """`backward_tangent`, after `moved`."""

    @final
    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        tape.dots = None
        if xdot is None and all(dot is None for dot in wdot):
            return None
        return self.moved(xdot, wdot, tape)

    @final
    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        if tape.dots is not None:
            return self.moved_back(dydot, wdot, tape, need_dx=need_dx)
        if dydot is None:
            return None, [None] * len(self.names)
        return self.backward(dydot, tape, need_dx=need_dx)


@final
class Conv(_Moving):
    """A convolution without bias that keeps the size of the image, or divides it by a stride.

    With x * W the convolution, dz * W' its transpose and dz . x the gradient in W, which are
    linear in each factor, the passes make the products
        z = x * W;   dW = dz . x,   dx = dz * W';
        zdot = x * V + xdot * W;
        dWdot = dzdot . x + dz . xdot,   dxdot = dzdot * W' + dz * V',
    which are nine, and four where the input has neither gradient nor tangent.

    Args:
        name: of the weight.
        stride: places of the image from one place of the output to the next.
    """

    def __init__(self, name: str, *, stride: int = 1) -> None:
        self.names = (f"{name}.weight",)
        self.stride = stride

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        (weight,) = tape.w
        patches = Patches.of(x) if self.stride == 1 and Patches.fit(x, weight) else None
        tape.save(x, patches)
        if patches is not None:
            return Patches.conv(patches, weight, x.shape)
        return conv((x, self._kernel(weight, x)))

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        # Without a gradient in x there is no tangent of x either, and dz has done its work.
        tape.keep_dy(dy if need_dx else None)
        dx, dw = self._back(tape, dy, need_dx=need_dx)
        return dx, [dw]

    def moved(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        (x, patches), (v,) = tape.saved, wdot
        tape.dots = (xdot,)
        terms = [] if xdot is None else [(xdot, self._kernel(tape.w[0], x))]
        if patches is None and v is not None:
            return conv((x, self._kernel(v, x)), *terms)
        zdot: Maybe = conv(*terms) if terms else None
        if v is not None:
            zdot = plus(Patches.conv(patches, v, x.shape), zdot)
        assert zdot is not None
        return zdot

    def moved_back(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        (x, _), (dz,), (xdot,), (v,) = tape.saved, tape.dy, tape.dots or (None,), wdot
        in_x, in_w = need_dx and v is not None, xdot is not None
        more = []
        if in_x or in_w:
            # dz * V' and dz . xdot are the gradients of a convolution of xdot with V.
            kernel = self._kernel(tape.w[0] if v is None else v, x)
            more = [Term(dz, x if xdot is None else xdot, kernel, dx=in_x, dw=in_w)]
        dx, dw = self._back(tape, dydot, *more, need_dx=need_dx)
        return dx, [dw]

    def _kernel(self, weight: Tensor, x: Tensor) -> Kernel:
        """W or V, laid out anew for every pass: kept, it may take four times the memory."""
        return Kernel.of(weight, x, self.stride)

    def _back(self, tape: Tape, dz: Maybe, *more: Term, need_dx: bool) -> tuple[Maybe, Maybe]:
        """dx if it is needed, and dW, and what is added to them."""
        x, patches = tape.saved
        terms = [*more]
        if dz is not None and (need_dx or patches is None):
            terms += [Term(dz, x, self._kernel(tape.w[0], x), dx=need_dx, dw=patches is None)]
        dx, dw = conv_backward(*terms) if terms else (None, None)
        if dz is not None and patches is not None:
            dw = plus(Patches.conv_dw(dz, patches, tape.w[0]), dw)
        return dx, dw


@final
class Norm(_Moving):
    """Batch norm with pooling and activation; the derivatives are those of `alfa.ops._norm`.

    Args:
        name: of gamma and beta.
        size: the side of a pooling window, 1 for none.
        slope: of the leaky ReLU from 0 to 1, which is none.
    """

    def __init__(self, name: str, *, size: int = 2, slope: float = 0.01) -> None:
        _check_size(size)
        self.names = (f"{name}.weight", f"{name}.bias")
        self.size, self.slope = size, slope

    def _op(self, tape: Tape) -> NormPoolAct:
        return NormPoolAct(self.size, self.slope, tape.own)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        gamma, beta = (part.flatten() for part in tape.w)
        a, saved = self._op(tape).forward(x, gamma, beta)
        tape.save(*saved)
        return a

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        dz, s1, s2 = self._op(tape).backward(dy, tape.w[0].flatten(), Saved(*tape.saved))
        tape.keep_dy(dy, s1, s2)
        return dz, [s2.view_as(tape.w[0]), s1.view_as(tape.w[1])]

    def moved(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        saved, (dy, _, _), gamma = Saved(*tape.saved), tape.dy, tape.w[0].flatten()
        gammadot, betadot = _flat(wdot, tape)
        zdot = torch.zeros_like(saved.z) if xdot is None else xdot
        adot, moments = self._op(tape).tangent(zdot, gammadot, betadot, dy, gamma, saved)
        tape.dots = zdot, moments
        return adot

    def moved_back(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        gammadot, _ = _flat(wdot, tape)
        zdot, moments = tape.dots or ()
        (dy, *sums), gamma = tape.dy, tape.w[0].flatten()
        dzdot, s1dot, s2dot = self._op(tape).backward_tangent(
            dydot, dy, zdot, gammadot, gamma, Saved(*tape.saved), sums, moments
        )
        return dzdot, [s2dot.view_as(tape.w[0]), s1dot.view_as(tape.w[1])]


def _flat(wdot: Sequence[Maybe], tape: Tape) -> list[Tensor]:
    pairs = zip(wdot, tape.w, strict=True)
    return [(torch.zeros_like(p) if dot is None else dot).flatten() for dot, p in pairs]


@final
class Linear(_Moving):
    """y = x W' + b for each task.

    backward: dx = dy W, dW = dy' x, db = sum dy; its tangent has two terms for each product.
    """

    def __init__(self, name: str) -> None:
        self.names = (f"{name}.weight", f"{name}.bias")

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        weight, bias = tape.w
        tape.save(x)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        tape.keep_dy(dy)
        (x,) = tape.saved
        return dy @ tape.w[0] if need_dx else None, [dy.mT @ x, dy.sum(1)]

    def moved(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        (v, b), (weight, _), (x,), (dy,) = wdot, tape.w, tape.saved, tape.dy
        tape.dots = (xdot,)
        ydot = torch.zeros_like(dy) if b is None else b.unsqueeze(1).expand_as(dy)
        if v is not None:
            ydot = torch.baddbmm(ydot, x, v.mT)
        if xdot is not None:
            ydot = torch.baddbmm(ydot, xdot, weight.mT)
        return ydot

    def moved_back(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        (v, _), (x,), (dy,), (xdot,) = wdot, tape.saved, tape.dy, tape.dots or ()
        dx, dw, db = None, None, None
        if dydot is not None:
            dx, dw, db = dydot @ tape.w[0], dydot.mT @ x, dydot.sum(1)
        if v is not None:
            dx = plus(dx, dy @ v)
        if xdot is not None:
            dw = plus(dw, dy.mT @ xdot)
        return dx, [dw, db]


class _Fixed(Stage):
    """A stage without parameters, linear wherever it has a derivative.

    One map forwards and its transpose are all the passes then.
    """

    @abc.abstractmethod
    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        """f_x xdot"""

    @abc.abstractmethod
    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        """f_x' dy"""

    @final
    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        return self.back(dy, tape), []

    @final
    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        return None if xdot is None else self.along(xdot, tape)

    @final
    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        return None if dydot is None else self.back(dydot, tape), []


@final
class Pool(_Fixed):
    """ReLU and max pooling."""

    def __init__(self, *, size: int = 2, padding: int = 0) -> None:
        _check_size(size)
        self.size, self.padding = size, padding
        self._op = PoolAct(size, padding)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        a, saved = self._op.forward(x)
        tape.save(*saved)
        return a

    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        return self._op.tangent(xdot, PoolSaved(*tape.saved))

    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        return self._op.backward(dy, PoolSaved(*tape.saved))


@final
class MaxPool(_Fixed):
    """Max pooling in windows of 3 x 3 that overlap, as they are 2 apart, with a padding of 1."""

    _GEOMETRY = [3, 3], [2, 2], [1, 1], [1, 1], False

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        images = x.permute(0, 3, 1, 2)
        pooled, places = torch.ops.aten.max_pool2d_with_indices(images, *self._GEOMETRY)
        tape.save(images, places)
        return _channels_last(pooled)

    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        _, places = tape.saved
        values = xdot.permute(0, 3, 1, 2).flatten(2).gather(2, places.flatten(2))
        return _channels_last(values.view(places.shape))

    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        images, places = tape.saved
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        dx = backward(dy.permute(0, 3, 1, 2), images, *self._GEOMETRY, places)
        return _channels_last(dx)


def _channels_last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous()


def _check_size(size: int) -> None:
    if size not in (1, 2):
        raise ConfigError(f"`size` is {size}, but pooling windows have a side of 2, or 1 for none.")


@final
class Flatten(_Fixed):
    """From images to vectors, in the order channel, height, width."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        tape.save(*x.shape)
        return self.along(x, tape)

    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        return leave(xdot, tape.num_tasks).flatten(2)

    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        _, height, width, num_channels = tape.saved
        return enter(dy.unflatten(2, (num_channels // tape.num_tasks, height, width)))


@final
class GlobalPool(_Fixed):
    """The mean over each image, as vectors."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        tape.save(*x.shape)
        return self.along(x, tape)

    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        means: Tensor = xdot.mean((1, 2)).unflatten(1, (tape.num_tasks, -1))
        return means.transpose(0, 1).contiguous()

    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        _, height, width, _ = tape.saved
        image: Tensor = dy.transpose(0, 1).flatten(1) / (height * width)
        return image[:, None, None, :].expand(tape.saved).contiguous()
