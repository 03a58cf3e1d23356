"""The stages that convolutional networks are made of, each with its derivatives by hand.

A stage y = f(x, w) has four passes. With dots for derivatives in a direction (xdot, wdot):

    forward             y
    backward            dx = f_x' dy,  dw = f_w' dy
    tangent             ydot = f_x xdot + f_w wdot
    backward_tangent    dxdot and dwdot, the derivatives of dx and dw in that direction,
                        where dy moves with dydot

A network is a stage, too. Its last two passes give the derivative of its gradient, which is what
a second-order outer gradient needs. `None` stands for a tangent or gradient of zero.

Images are ``[example, height, width, task * channel]``, tasks side by side as channels, each with
weights of its own; vectors are ``[task, example, feature]``; parameters are ``[task, ...]``.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.ops._conv import Kernel, Patches, conv, conv_backward
from alfa.ops._norm import NormPoolAct, PoolAct

Maybe = Tensor | None


@dataclass
class Tape:
    """What the passes of a stage leave for those after them.

    Attributes:
        w: the parameters.
        num_tasks: the tasks that lie side by side.
        own: how many examples batch norm takes its statistics of, from the first; None for all.
        saved: by the forward pass.
        dy: by the backward pass, where there will be tangents.
        left: by the tangent.
        parts: the tapes of the stages that a stage is made of.
        tangents: whether there will be any; what they need is kept only then.
    """

    w: Sequence[Tensor]
    num_tasks: int
    own: int | None = None
    saved: Any = None
    dy: Any = None
    left: Any = None
    parts: list[Tape] = field(default_factory=list)
    tangents: bool = True

    def set_tangents(self, tangents: bool) -> None:
        """Say whether there will be tangents, before the backward pass."""
        self.tangents = tangents
        for part in self.parts:
            part.set_tangents(tangents)

    def keep_dy(self, dy: Any) -> None:
        """Keep what the tangents need of the backward pass."""
        self.dy = dy if self.tangents else None


class Stage(abc.ABC):
    """A differentiable piece of a network.

    Attributes:
        names: of its parameters, in the order in which the passes take them.
    """

    names: tuple[str, ...] = ()

    @abc.abstractmethod
    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        """y"""

    @abc.abstractmethod
    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
        """dx if it is needed, and dw."""

    @abc.abstractmethod
    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        """ydot"""

    @abc.abstractmethod
    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        """dxdot if it is needed, and dwdot."""


@final
class Conv(Stage):
    """A convolution without bias that keeps the size of the image.

    The passes make the products
        z = x * W;   dW = dz . x,   dx = dz * W';
        zdot = x * V + xdot * W;
        dWdot = dzdot . x + dz . xdot,   dxdot = dzdot * W' + dz * V',
    which are nine, and four where the input has neither gradient nor tangent.
    """

    def __init__(self, name: str) -> None:
        self.names = (f"{name}.weight",)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        (weight,) = tape.w
        kernel = Kernel.of(weight)
        patches = Patches.of(x) if Patches.fit(x, weight) else None
        tape.saved = x, patches, kernel
        return conv(x, kernel) if patches is None else Patches.conv(patches, weight, x.shape)

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
        # Without a gradient in x there is no tangent of x either, and dz has done its work.
        tape.keep_dy(dy if need_dx else None)
        dx, dw = _back(dy, tape, need_dx=need_dx)
        return dx, [dw]

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        (x, patches, kernel), (v,) = tape.saved, wdot
        direction = None if v is None else Kernel.of(v)
        tape.left = xdot, direction
        zdot = None
        if v is not None and direction is not None:
            zdot = conv(x, direction) if patches is None else Patches.conv(patches, v, x.shape)
        if xdot is not None:
            zdot = _sum(zdot, conv(xdot, kernel))
        if zdot is None:
            num_channels = kernel.shape[0] * kernel.shape[1]
            zdot = x.new_zeros(*x.shape[:3], num_channels)
        return zdot

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        (x, _, kernel), dz, (xdot, direction) = tape.saved, tape.dy, tape.left
        dx: Maybe = None
        dw: Maybe = None
        if dydot is not None:
            dx, dw = _back(dydot, tape, need_dx=need_dx)
        in_x, in_w = need_dx and direction is not None, xdot is not None
        if in_x or in_w:
            # dz * V' and dz . xdot are the gradients of a convolution of xdot with V.
            more_dx, more_dw = conv_backward(
                dz, x if xdot is None else xdot, direction or kernel, dx=in_x, dw=in_w
            )
            dx, dw = _sum(dx, more_dx), _sum(dw, more_dw)
        return dx, [dw]


def _back(dz: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, Tensor]:
    """dx if it is needed, and dW."""
    (x, patches, kernel), (weight,) = tape.saved, tape.w
    if patches is None:
        dx, dw = conv_backward(dz, x, kernel, dx=need_dx)
    else:
        dx = conv_backward(dz, x, kernel, dw=False)[0] if need_dx else None
        dw = Patches.conv_dw(dz, patches, weight)
    assert dw is not None
    return dx, dw


@final
class Norm(Stage):
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
        a, tape.saved = self._op(tape).forward(x, gamma, beta)
        return a

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
        dz, s1, s2 = self._op(tape).backward(dy, tape.w[0].flatten(), tape.saved)
        tape.keep_dy((dy, (s1, s2)))
        return dz, [s2.view_as(tape.w[0]), s1.view_as(tape.w[1])]

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        gammadot, betadot = _flat(wdot, tape)
        zdot = torch.zeros_like(tape.saved.z) if xdot is None else xdot
        (dy, _), gamma = tape.dy, tape.w[0].flatten()
        adot, moments = self._op(tape).tangent(zdot, gammadot, betadot, dy, gamma, tape.saved)
        tape.left = zdot, moments
        return adot

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        gammadot, _ = _flat(wdot, tape)
        (dy, sums), (zdot, moments), gamma = tape.dy, tape.left, tape.w[0].flatten()
        dzdot, s1dot, s2dot = self._op(tape).backward_tangent(
            dydot, dy, zdot, gammadot, gamma, tape.saved, sums, moments
        )
        return dzdot, [s2dot.view_as(tape.w[0]), s1dot.view_as(tape.w[1])]


def _flat(wdot: Sequence[Maybe], tape: Tape) -> list[Tensor]:
    pairs = zip(wdot, tape.w, strict=True)
    return [(torch.zeros_like(p) if dot is None else dot).flatten() for dot, p in pairs]


@final
class Linear(Stage):
    """y = x W' + b for each task.

    backward: dx = dy W, dW = dy' x, db = sum dy; its tangent has two terms for each product.
    """

    def __init__(self, name: str) -> None:
        self.names = (f"{name}.weight", f"{name}.bias")

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        weight, bias = tape.w
        tape.saved = x
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
        tape.keep_dy(dy)
        return dy @ tape.w[0] if need_dx else None, [dy.mT @ tape.saved, dy.sum(1)]

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Tensor:
        (v, b), (weight, _), dy = wdot, tape.w, tape.dy
        tape.left = xdot
        ydot = torch.zeros_like(dy) if b is None else b.unsqueeze(1).expand_as(dy)
        if v is not None:
            ydot = torch.baddbmm(ydot, tape.saved, v.mT)
        if xdot is not None:
            ydot = torch.baddbmm(ydot, xdot, weight.mT)
        return ydot

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        (v, _), x, dy, xdot = wdot, tape.saved, tape.dy, tape.left
        dx, dw, db = None, None, None
        if dydot is not None:
            dx, dw, db = dydot @ tape.w[0], dydot.mT @ x, dydot.sum(1)
        if v is not None:
            dx = _sum(dx, dy @ v)
        if xdot is not None:
            dw = _sum(dw, dy.mT @ xdot)
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
    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
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
        self._op = PoolAct(size, padding)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        a, tape.saved = self._op.forward(x)
        return a

    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        return self._op.tangent(xdot, tape.saved)

    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        return self._op.backward(dy, tape.saved)


def _check_size(size: int) -> None:
    if size not in (1, 2):
        raise ConfigError(f"`size` is {size}, but pooling windows have a side of 2, or 1 for none.")


@final
class Flatten(_Fixed):
    """From images to vectors, in the order channel, height, width."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        tape.saved = x.shape
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
        tape.saved = x.shape
        return self.along(x, tape)

    def along(self, xdot: Tensor, tape: Tape) -> Tensor:
        means: Tensor = xdot.mean((1, 2)).unflatten(1, (tape.num_tasks, -1))
        return means.transpose(0, 1).contiguous()

    def back(self, dy: Tensor, tape: Tape) -> Tensor:
        _, height, width, _ = tape.saved
        image: Tensor = dy.transpose(0, 1).flatten(1) / (height * width)
        return image[:, None, None, :].expand(tape.saved).contiguous()


@final
class Chain(Stage):
    """Stages one after the other."""

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages
        self.names = tuple(name for stage in stages for name in stage.names)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        for stage, w in zip(self.stages, _dealt(tape.w, self.stages), strict=True):
            tape.parts.append(Tape(w, tape.num_tasks, tape.own))
            x = stage.forward(x, tape.parts[-1])
        return x

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
        gradient: Maybe = dy
        dws: list[Tensor] = []
        for number in range(len(self.stages) - 1, -1, -1):
            assert gradient is not None
            gradient, dw = self.stages[number].backward(
                gradient, tape.parts[number], need_dx=need_dx or number > 0
            )
            dws = dw + dws
        return gradient, dws

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        parts = zip(self.stages, _dealt(wdot, self.stages), tape.parts, strict=True)
        for stage, dots, part in parts:
            xdot = stage.tangent(xdot, dots, part)
        return xdot

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        dws: list[Maybe] = []
        dots = _dealt(wdot, self.stages)
        for number in range(len(self.stages) - 1, -1, -1):
            dydot, dw = self.stages[number].backward_tangent(
                dydot, dots[number], tape.parts[number], need_dx=need_dx or number > 0
            )
            dws = dw + dws
        return dydot, dws


@final
class Sum(Stage):
    """The sum of stages that have the same input."""

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages
        self.names = tuple(name for stage in stages for name in stage.names)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        total: Maybe = None
        for stage, w in zip(self.stages, _dealt(tape.w, self.stages), strict=True):
            tape.parts.append(Tape(w, tape.num_tasks, tape.own))
            y = stage.forward(x, tape.parts[-1])
            total = _new_sum(total, y)
        assert total is not None
        return total

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Tensor]]:
        total: Maybe = None
        dws: list[Tensor] = []
        for stage, part in zip(self.stages, tape.parts, strict=True):
            dx, dw = stage.backward(dy, part, need_dx=need_dx)
            total, dws = _new_sum(total, dx), dws + dw
        return total, dws

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        total: Maybe = None
        parts = zip(self.stages, _dealt(wdot, self.stages), tape.parts, strict=True)
        for stage, dots, part in parts:
            total = _new_sum(total, stage.tangent(xdot, dots, part))
        return total

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        total: Maybe = None
        dws: list[Maybe] = []
        parts = zip(self.stages, _dealt(wdot, self.stages), tape.parts, strict=True)
        for stage, dots, part in parts:
            dx, dw = stage.backward_tangent(dydot, dots, part, need_dx=need_dx)
            total, dws = _new_sum(total, dx), dws + dw
        return total, dws


def enter(images: Tensor) -> Tensor:
    """``[task, example, channel, height, width]`` to the layout of the stages."""
    _, num_examples, _, height, width = images.shape
    # The channels of a single task would stay a view that is not laid out like this.
    return images.permute(1, 3, 4, 0, 2).reshape(num_examples, height, width, -1).contiguous()


def leave(images: Tensor, num_tasks: int) -> Tensor:
    """The way back."""
    apart: Tensor = images.unflatten(3, (num_tasks, -1))
    return apart.permute(3, 0, 4, 1, 2)


def _dealt(parameters: Sequence[Any], stages: Sequence[Stage]) -> list[Sequence[Any]]:
    """The parameters of each stage."""
    parts, first = [], 0
    for stage in stages:
        parts.append(parameters[first : first + len(stage.names)])
        first += len(stage.names)
    return parts


def _sum(first: Maybe, second: Maybe) -> Maybe:
    """The sum, in the place of the first, which must be a result that nobody else holds."""
    if first is None or second is None:
        return second if first is None else first
    return first.add_(second)


def _new_sum(first: Maybe, second: Maybe) -> Maybe:
    """The sum of terms that others may hold, such as an input that is passed on."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
