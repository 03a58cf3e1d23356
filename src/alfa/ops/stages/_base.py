"""The interface of a stage, the tape that its passes share, and the layout of images."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Maybe = Tensor | None
"""None stands for zero."""

Dots = Sequence[Maybe]
"""The tangents of the parameters."""

Gradients = tuple[Maybe, list[Maybe]]
"""dx and dw."""


@dataclass
class Tape:
    """The values that the passes of a stage save for later passes, each a flat sequence.

    Attributes:
        w: the parameters.
        num_tasks: the tasks side by side.
        num_norm_examples: number of leading examples used for batch-norm statistics; None for all.
        wanted: the parameters whose gradients the backward pass must return; None for all.
        needs_backward: whether there will be a pass after the forward one.
        needs_tangents: whether there will be tangents.
        saved: by the forward pass.
        dy: by the backward pass.
        dots: by the tangent; None if all inputs are constant.
        parts: the tapes of the parts of a composed stage.
    """

    w: Sequence[Tensor]
    num_tasks: int
    num_norm_examples: int | None = None
    wanted: Sequence[bool] | None = None
    needs_backward: bool = True
    needs_tangents: bool = True
    saved: Sequence[Any] = ()
    dy: Sequence[Any] = ()
    dots: Sequence[Any] | None = None
    parts: list[Tape] = field(default_factory=list)

    def add_part(self, w: Sequence[Tensor], *, needs_backward: bool) -> Tape:
        """The tape of the next part of a composed stage."""
        part = Tape(w, self.num_tasks, self.num_norm_examples)
        part.needs_backward, part.needs_tangents = needs_backward, self.needs_tangents
        self.parts.append(part)
        return part

    def set_needs_tangents(self, needs_tangents: bool) -> None:
        """Set it for all parts, before the backward pass."""
        self.needs_tangents = needs_tangents
        for part in self.parts:
            part.set_needs_tangents(needs_tangents)

    def save(self, *values: Any) -> None:
        """Save values of the forward pass."""
        self.saved = values if self.needs_backward else ()

    def save_dy(self, *values: Any) -> None:
        """Save values of the backward pass."""
        self.dy = values if self.needs_tangents else ()


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
    def backward(self, dy: Tensor, tape: Tape, *, need_dx: bool) -> Gradients:
        """dx if it is needed, and dw; None for gradients that are not wanted."""

    @abc.abstractmethod
    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        """ydot"""

    @abc.abstractmethod
    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape, *, need_dx: bool) -> Gradients:
        """dxdot if it is needed, and dwdot."""


def to_stage_layout(images: Tensor) -> Tensor:
    """``[task, example, channel, height, width]`` to the layout of the stages."""
    _, num_examples, _, height, width = images.shape
    rows = images.permute(1, 3, 4, 0, 2).reshape(num_examples, height, width, -1)
    # For a single task, `reshape` returns a view with another memory layout.
    return rows.contiguous()


def from_stage_layout(images: Tensor, num_tasks: int) -> Tensor:
    """The inverse of `to_stage_layout`."""
    apart: Tensor = images.unflatten(3, (num_tasks, -1))
    return apart.permute(3, 0, 4, 1, 2)
