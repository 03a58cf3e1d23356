"""Stages that are composed of stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import islice
from typing import Any, final

import torch
from torch import Tensor

from alfa.ops.stages._base import Dots, Gradients, Maybe, Stage, Tape


class _Composed(Stage):
    def __init__(self, *stages: Stage) -> None:
        self.stages = stages
        self.names = tuple(name for stage in stages for name in stage.names)

    def by_stage(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Split a sequence with one value for each parameter."""
        remaining = iter(values)
        return [list(islice(remaining, len(stage.names))) for stage in self.stages]


@final
class Chain(_Composed):
    """Stages one after the other.

    The backward pass ends at the first stage with a wanted gradient.
    """

    def _first_wanted(self, tape: Tape) -> int:
        if tape.wanted is None:
            return 0
        wanted = [any(part) for part in self.by_stage(tape.wanted)]
        return wanted.index(True) if any(wanted) else len(wanted)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        first = self._first_wanted(tape)
        for number, (stage, w) in enumerate(zip(self.stages, self.by_stage(tape.w), strict=True)):
            needs_backward = tape.needs_backward and (tape.needs_tangents or number >= first)
            x = stage.forward(x, tape.add_part(w, needs_backward=needs_backward))
        return x

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> Gradients:
        gradient: Maybe = dy
        dws: list[Maybe] = []
        first = self._first_wanted(tape)
        for number in range(len(self.stages) - 1, first - 1, -1):
            assert gradient is not None
            gradient, dw = self.stages[number].backward(
                gradient, tape.parts[number], need_dx=need_dx or number > 0
            )
            dws = dw + dws
        unwanted: list[Maybe] = [None] * (len(self.names) - len(dws))
        return gradient if first == 0 else None, unwanted + dws

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        for stage, dots, part in zip(self.stages, self.by_stage(wdot), tape.parts, strict=True):
            xdot = stage.tangent(xdot, dots, part)
        return xdot

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape, *, need_dx: bool) -> Gradients:
        dws: list[Maybe] = []
        dots = self.by_stage(wdot)
        for number in range(len(self.stages) - 1, -1, -1):
            dydot, dw = self.stages[number].backward_tangent(
                dydot, dots[number], tape.parts[number], need_dx=need_dx or number > 0
            )
            dws = dw + dws
        return dydot, dws


@final
class Sum(_Composed):
    """The sum of stages that have the same input."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        total: Maybe = None
        for stage, w in zip(self.stages, self.by_stage(tape.w), strict=True):
            part = tape.add_part(w, needs_backward=tape.needs_backward)
            total = _sum(total, stage.forward(x, part))
        assert total is not None
        return total

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> Gradients:
        total: Maybe = None
        dws: list[Maybe] = []
        for stage, part in zip(self.stages, tape.parts, strict=True):
            dx, dw = stage.backward(dy, part, need_dx=need_dx)
            total, dws = _sum(total, dx), dws + dw
        return total, dws

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        total: Maybe = None
        for stage, dots, part in zip(self.stages, self.by_stage(wdot), tape.parts, strict=True):
            total = _sum(total, stage.tangent(xdot, dots, part))
        return total

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape, *, need_dx: bool) -> Gradients:
        total: Maybe = None
        dws: list[Maybe] = []
        for stage, dots, part in zip(self.stages, self.by_stage(wdot), tape.parts, strict=True):
            dx, dw = stage.backward_tangent(dydot, dots, part, need_dx=need_dx)
            total, dws = _sum(total, dx), dws + dw
        return total, dws


@final
class Split(Stage):
    """A stage that processes consecutive parts of the images separately.

    Args:
        stage: its output must have as many images as its input.
        num_parts: number of parts, of equal size except the last; fewer if there are few images.
    """

    def __init__(self, stage: Stage, num_parts: int) -> None:
        self.stage, self.num_parts = stage, num_parts
        self.names = stage.names

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        outputs = []
        for images in x.chunk(self.num_parts):
            part = tape.add_part(tape.w, needs_backward=tape.needs_backward)
            outputs.append(self.stage.forward(images, part))
        return torch.cat(outputs)

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> Gradients:
        parts = zip(self._chunks(dy, tape), tape.parts, strict=True)
        return _join([self.stage.backward(part, its, need_dx=need_dx) for part, its in parts])

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        parts = zip(self._chunks(xdot, tape), tape.parts, strict=True)
        return _cat([self.stage.tangent(part, wdot, its) for part, its in parts])

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape, *, need_dx: bool) -> Gradients:
        parts = zip(self._chunks(dydot, tape), tape.parts, strict=True)
        return _join(
            [self.stage.backward_tangent(part, wdot, its, need_dx=need_dx) for part, its in parts]
        )

    def _chunks(self, images: Maybe, tape: Tape) -> Sequence[Any]:
        return [None] * len(tape.parts) if images is None else images.chunk(self.num_parts)


def _join(parts: Sequence[Gradients]) -> Gradients:
    """Concatenate the gradients in the images, and add up those in the parameters."""
    dxs, dws = zip(*parts, strict=True)
    return _cat(dxs), [reduce(_sum, dw) for dw in zip(*dws, strict=True)]


def _cat(parts: Sequence[Maybe]) -> Maybe:
    """None if the parts are None: either all are or none is."""
    return None if parts[0] is None else torch.cat([part for part in parts if part is not None])


def _sum(first: Maybe, second: Maybe) -> Maybe:
    """A new tensor: the terms may have other owners, such as an input that is passed on."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
