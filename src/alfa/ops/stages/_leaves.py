"""The other stages that are not composed of stages."""

import abc
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.ops._conv import (
    Kernel,
    Patches,
    Term,
    add_in_place,
    channels_first,
    channels_last,
    conv,
    conv_backward,
)
from alfa.ops._pool import check_size, max_pool, select, unpool
from alfa.ops.stages._base import (
    Dots,
    Gradients,
    Maybe,
    Stage,
    Tape,
    from_stage_layout,
    to_stage_layout,
)


@final
class Conv(Stage):
    """A convolution without bias that keeps the size of the image, or divides it by a stride.

    With x * W the convolution, dz * W' its transpose, and dz . x the gradient in W, which are
    linear in each factor, the passes compute the products
        z = x * W;   dW = dz . x,   dx = dz * W';
        zdot = x * V + xdot * W;
        dWdot = dzdot . x + dz . xdot,   dxdot = dzdot * W' + dz * V'.
    These are nine products, and four if the input has neither gradient nor tangent. Every pass lays
    out W or V, because saving the layout may take four times the memory.
    """

    def __init__(self, name: str, *, stride: int = 1) -> None:
        self.names = (f"{name}.weight",)
        self.stride = stride

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        (weight,) = tape.w
        patches = Patches.of(x) if self.stride == 1 and Patches.are_faster(x, weight) else None
        tape.save(x, patches)
        if patches is not None:
            return Patches.conv(patches, weight, x.shape)
        return conv((x, Kernel.of(weight, x, self.stride)))

    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        # Without a gradient in x there is no tangent of x either, and dz is not needed again.
        tape.save_dy(dy if tape.needs_dx else None)
        return self._gradients(dy, tape)

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        (x, patches), (v,) = tape.saved, wdot
        tape.dots = (xdot,)
        terms = []
        if v is not None and patches is None:
            terms.append((x, Kernel.of(v, x, self.stride)))
        if xdot is not None:
            terms.append((xdot, Kernel.of(tape.w[0], x, self.stride)))
        zdot = conv(*terms) if terms else None
        if v is not None and patches is not None:
            zdot = add_in_place(Patches.conv(patches, v, x.shape), zdot)
        return zdot

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        (x, _), (xdot,), (v,) = tape.saved, tape.dots, wdot
        in_x, in_w = tape.needs_dx and v is not None, xdot is not None
        if not in_x and not in_w:
            return self._gradients(dydot, tape)
        # dz * V' and dz . xdot are the gradients of a convolution of xdot with V.
        kernel = Kernel.of(tape.w[0] if v is None else v, x, self.stride)
        term = Term(tape.dy[0], x if xdot is None else xdot, kernel, dx=in_x, dw=in_w)
        return self._gradients(dydot, tape, term)

    def _gradients(self, dz: Maybe, tape: Tape, *more: Term) -> Gradients:
        """Return dx if it is needed, and dW, plus the gradients of the other terms."""
        x, patches = tape.saved
        terms = [*more]
        if dz is not None and (tape.needs_dx or patches is None):
            kernel = Kernel.of(tape.w[0], x, self.stride)
            terms.append(Term(dz, x, kernel, dx=tape.needs_dx, dw=patches is None))
        dx, dw = conv_backward(*terms) if terms else (None, None)
        if dz is not None and patches is not None:
            dw = add_in_place(Patches.conv_dw(dz, patches, tape.w[0]), dw)
        return dx, [dw]


@final
class Linear(Stage):
    """y = x W' + b for each task.

    backward: dx = dy W, dW = dy' x, db = sum dy; its tangent has two terms for each product.
    """

    def __init__(self, name: str) -> None:
        self.names = (f"{name}.weight", f"{name}.bias")

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        weight, bias = tape.w
        tape.save(x)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        tape.save_dy(dy)
        (x,) = tape.saved
        return dy @ tape.w[0] if tape.needs_dx else None, [dy.mT @ x, dy.sum(1)]

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        (v, b), (weight, _), (x,) = wdot, tape.w, tape.saved
        tape.dots = (xdot,)
        if v is None and b is None and xdot is None:
            return None
        dy = tape.dy[0]
        ydot = torch.zeros_like(dy) if b is None else b.unsqueeze(1).expand_as(dy)
        if v is not None:
            ydot = torch.baddbmm(ydot, x, v.mT)
        if xdot is not None:
            ydot = torch.baddbmm(ydot, xdot, weight.mT)
        return ydot

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        (v, _), (x,), (xdot,) = wdot, tape.saved, tape.dots
        dx, dw, db = None, None, None
        if dydot is not None:
            dx = dydot @ tape.w[0] if tape.needs_dx else None
            dw, db = dydot.mT @ x, dydot.sum(1)
        if v is not None and tape.needs_dx:
            dx = add_in_place(dx, tape.dy[0] @ v)
        if xdot is not None:
            dw = add_in_place(dw, tape.dy[0].mT @ xdot)
        return dx, [dw, db]


class _LinearMap(Stage):
    """A stage without parameters, linear wherever it has a derivative."""

    @abc.abstractmethod
    def jvp(self, xdot: Tensor, tape: Tape) -> Tensor:
        """Return f_x xdot."""

    @abc.abstractmethod
    def vjp(self, dy: Tensor, tape: Tape) -> Tensor:
        """Return f_x' dy."""

    @final
    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        return self.vjp(dy, tape), []

    @final
    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        return None if xdot is None else self.jvp(xdot, tape)

    @final
    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        return None if dydot is None else self.vjp(dydot, tape), []


@final
class Mask(_LinearMap):
    """Multiplication with random factors, for example for dropout; every pass uses the same.

    `draw` returns the factors of the input of some tasks side by side, or None to change nothing.
    """

    def __init__(self, draw: Callable[[Tensor, int], Maybe]) -> None:
        self.draw = draw

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        tape.save(mask := self.draw(x, tape.num_tasks))
        return x if mask is None else x * mask

    def jvp(self, xdot: Tensor, tape: Tape) -> Tensor:
        (mask,) = tape.saved
        return xdot if mask is None else xdot * mask

    def vjp(self, dy: Tensor, tape: Tape) -> Tensor:
        return self.jvp(dy, tape)


@final
class Pool(_LinearMap):
    """Leaky ReLU and max pooling in windows of `size`, 1 for none, after a padding.

    The padding only changes the number of windows; it is never selected.
    """

    def __init__(self, *, size: int = 2, padding: int = 0, slope: float = 0.0) -> None:
        check_size(size)
        self.size, self.padding, self.slope = size, padding, slope

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        x = self._padded(x, -torch.inf)
        selected, places = max_pool(x, self.size)
        a = F.leaky_relu(selected, self.slope) if self.slope else selected.relu()
        tape.save(a, places, x.shape)
        return a

    def jvp(self, xdot: Tensor, tape: Tape) -> Tensor:
        a, places, _ = tape.saved
        return self._sloped(select(self._padded(xdot, 0.0), places, self.size), a)

    def vjp(self, dy: Tensor, tape: Tape) -> Tensor:
        a, places, shape = tape.saved
        image = unpool(self._sloped(dy, a), places, shape, self.size)
        p = self.padding
        return image[:, p : shape[1] - p, p : shape[2] - p].contiguous()

    def _sloped(self, values: Tensor, a: Tensor) -> Tensor:
        """Multiply by the derivative of the activation."""
        if not self.slope:
            return values * (a > 0)
        return torch.where(a > 0, values, self.slope * values)

    def _padded(self, images: Tensor, value: float) -> Tensor:
        p = self.padding
        return F.pad(images, (0, 0, p, p, p, p), value=value) if p else images


@final
class MaxPool(_LinearMap):
    """Max pooling in windows of 3 x 3 with a stride of 2 and a padding of 1."""

    _GEOMETRY = [3, 3], [2, 2], [1, 1], [1, 1], False

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        images = channels_first(x)
        pooled, places = torch.ops.aten.max_pool2d_with_indices(images, *self._GEOMETRY)
        tape.save(images, places)
        return channels_last(pooled)

    def jvp(self, xdot: Tensor, tape: Tape) -> Tensor:
        _, places = tape.saved
        values = channels_first(xdot).flatten(2).gather(2, places.flatten(2))
        return channels_last(values.view(places.shape))

    def vjp(self, dy: Tensor, tape: Tape) -> Tensor:
        images, places = tape.saved
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        return channels_last(backward(channels_first(dy), images, *self._GEOMETRY, places))


@final
class Flatten(_LinearMap):
    """Images to vectors, in the order channel, height, width."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        tape.save(*x.shape)
        return self.jvp(x, tape)

    def jvp(self, xdot: Tensor, tape: Tape) -> Tensor:
        return from_stage_layout(xdot, tape.num_tasks).flatten(2)

    def vjp(self, dy: Tensor, tape: Tape) -> Tensor:
        _, height, width, num_channels = tape.saved
        return to_stage_layout(dy.unflatten(2, (num_channels // tape.num_tasks, height, width)))


@final
class GlobalPool(_LinearMap):
    """The mean over each image, as vectors."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        tape.save(*x.shape)
        return self.jvp(x, tape)

    def jvp(self, xdot: Tensor, tape: Tape) -> Tensor:
        means: Tensor = xdot.mean((1, 2)).unflatten(1, (tape.num_tasks, -1))
        return means.transpose(0, 1).contiguous()

    def vjp(self, dy: Tensor, tape: Tape) -> Tensor:
        _, height, width, _ = tape.saved
        image: Tensor = dy.transpose(0, 1).flatten(1) / (height * width)
        return image[:, None, None, :].expand(tape.saved).contiguous()
