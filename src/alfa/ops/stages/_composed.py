"""Stages that are made of stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor

from alfa.ops.stages._base import Maybe, Stage, Tape


class _Composed(Stage):
    def __init__(self, *stages: Stage) -> None:
        self.stages = stages
        self.names = tuple(name for stage in stages for name in stage.names)

    def dealt(self, of_parameters: Sequence[Any]) -> list[Sequence[Any]]:
        """What belongs to the parameters of each stage."""
        parts, first = [], 0
        for stage in self.stages:
            parts.append(of_parameters[first : first + len(stage.names)])
            first += len(stage.names)
        return parts


@final
class Chain(_Composed):
    """Stages one after the other.

    Below the lowest stage with a wanted gradient the backward pass need not go.
    """

    def _lowest(self, tape: Tape) -> int:
        if tape.wanted is None:
            return 0
        wanted = [any(part) for part in self.dealt(tape.wanted)]
        return wanted.index(True) if any(wanted) else len(wanted)

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        lowest = self._lowest(tape)
        for number, (stage, w) in enumerate(zip(self.stages, self.dealt(tape.w), strict=True)):
            keeps = tape.keeps and (tape.tangents or number >= lowest)
            x = stage.forward(x, tape.part(w, keeps=keeps))
        return x

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        gradient: Maybe = dy
        dws: list[Maybe] = []
        lowest = self._lowest(tape)
        for number in range(len(self.stages) - 1, lowest - 1, -1):
            assert gradient is not None
            gradient, dw = self.stages[number].backward(
                gradient, tape.parts[number], need_dx=need_dx or number > 0
            )
            dws = dw + dws
        unwanted: list[Maybe] = [None] * (len(self.names) - len(dws))
        return gradient if lowest == 0 else None, unwanted + dws

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        parts = zip(self.stages, self.dealt(wdot), tape.parts, strict=True)
        for stage, dots, part in parts:
            xdot = stage.tangent(xdot, dots, part)
        return xdot

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        dws: list[Maybe] = []
        dots = self.dealt(wdot)
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
        for stage, w in zip(self.stages, self.dealt(tape.w), strict=True):
            total = _sum(total, stage.forward(x, tape.part(w, keeps=tape.keeps)))
        assert total is not None
        return total

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        total: Maybe = None
        dws: list[Maybe] = []
        for stage, part in zip(self.stages, tape.parts, strict=True):
            dx, dw = stage.backward(dy, part, need_dx=need_dx)
            total, dws = _sum(total, dx), dws + dw
        return total, dws

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        total: Maybe = None
        for stage, dots, part in zip(self.stages, self.dealt(wdot), tape.parts, strict=True):
            total = _sum(total, stage.tangent(xdot, dots, part))
        return total

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        total: Maybe = None
        dws: list[Maybe] = []
        for stage, dots, part in zip(self.stages, self.dealt(wdot), tape.parts, strict=True):
            dx, dw = stage.backward_tangent(dydot, dots, part, need_dx=need_dx)
            total, dws = _sum(total, dx), dws + dw
        return total, dws


@final
class Split(Stage):
    """A stage that takes consecutive parts of the images by themselves.

    Args:
        stage: whose output has as many images as its input.
        num_parts: how many parts, of equal size but for the last; fewer where images are few.
    """

    def __init__(self, stage: Stage, num_parts: int) -> None:
        self.stage, self.num_parts = stage, num_parts
        self.names = stage.names

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        parts = x.chunk(self.num_parts)
        return torch.cat(
            [self.stage.forward(part, tape.part(tape.w, keeps=tape.keeps)) for part in parts]
        )

    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        parts = zip(self._dealt(dy, tape), tape.parts, strict=True)
        return _joined([self.stage.backward(part, its, need_dx=need_dx) for part, its in parts])

    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        parts = zip(self._dealt(xdot, tape), tape.parts, strict=True)
        return _cat([self.stage.tangent(part, wdot, its) for part, its in parts])

    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        parts = zip(self._dealt(dydot, tape), tape.parts, strict=True)
        return _joined(
            [self.stage.backward_tangent(part, wdot, its, need_dx=need_dx) for part, its in parts]
        )

    def _dealt(self, images: Maybe, tape: Tape) -> Sequence[Any]:
        return [None] * len(tape.parts) if images is None else images.chunk(self.num_parts)


def _joined(parts: Sequence[tuple[Maybe, list[Maybe]]]) -> tuple[Maybe, list[Maybe]]:
    """The images one after the other, and the sum of what belongs to the parameters."""
    dxs, dws = zip(*parts, strict=True)
    return _cat(dxs), [reduce(_sum, dw) for dw in zip(*dws, strict=True)]


def _cat(parts: Sequence[Maybe]) -> Maybe:
    """Either all parts move or none does."""
    return None if parts[0] is None else torch.cat([part for part in parts if part is not None])


def _sum(first: Maybe, second: Maybe) -> Maybe:
    """A new tensor: others may hold the terms, such as an input that is passed on."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
