"""What a stage is, what its passes leave for each other, and the layout of images."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Maybe = Tensor | None


@dataclass
class Tape:
    """What the passes of a stage leave for those after them, each a flat sequence.

    Attributes:
        w: the parameters.
        num_tasks: the tasks that lie side by side.
        own: how many examples batch norm takes its statistics of, from the first; None for all.
        wanted: the parameters whose gradients the backward pass is asked for; None for all.
        keeps: whether there will be a pass after the forward one.
        tangents: whether there will be any; what they need is kept only then.
        saved: by the forward pass.
        dy: by the backward pass.
        dots: by the tangent; None where nothing moved.
        parts: the tapes of the stages that a stage is made of.
    """

    w: Sequence[Tensor]
    num_tasks: int
    own: int | None = None
    wanted: Sequence[bool] | None = None
    keeps: bool = True
    tangents: bool = True
    saved: Sequence[Any] = ()
    dy: Sequence[Any] = ()
    dots: Sequence[Any] | None = None
    parts: list[Tape] = field(default_factory=list)

    def part(self, w: Sequence[Tensor], *, keeps: bool) -> Tape:
        """The tape of the next stage that this one is made of."""
        part = Tape(w, self.num_tasks, self.own, keeps=keeps, tangents=self.tangents)
        self.parts.append(part)
        return part

    def set_tangents(self, tangents: bool) -> None:
        """Say whether there will be tangents, before the backward pass."""
        self.tangents = tangents
        for part in self.parts:
            part.set_tangents(tangents)

    def save(self, *values: Any) -> None:
        """Keep what the other passes need of the forward one."""
        self.saved = values if self.keeps else ()

    def keep_dy(self, *values: Any) -> None:
        """Keep what the tangents need of the backward pass."""
        self.dy = values if self.tangents else ()


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
    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> tuple[Maybe, list[Maybe]]:
        """dx if it is needed, and dw; None for what nobody asked for."""

    @abc.abstractmethod
    def tangent(self, xdot: Maybe, wdot: Sequence[Maybe], tape: Tape) -> Maybe:
        """ydot"""

    @abc.abstractmethod
    def backward_tangent(
        self, dydot: Maybe, wdot: Sequence[Maybe], tape: Tape, *, need_dx: bool
    ) -> tuple[Maybe, list[Maybe]]:
        """dxdot if it is needed, and dwdot."""


def enter(images: Tensor) -> Tensor:
    """``[task, example, channel, height, width]`` to the layout of the stages."""
    _, num_examples, _, height, width = images.shape
    rows = images.permute(1, 3, 4, 0, 2).reshape(num_examples, height, width, -1)
    # The channels of a single task would stay a view that is not laid out like this.
    return rows.contiguous()


def leave(images: Tensor, num_tasks: int) -> Tensor:
    """The way back."""
    apart: Tensor = images.unflatten(3, (num_tasks, -1))
    return apart.permute(3, 0, 4, 1, 2)
