"""The interface of a stage, the tape that its passes share, and the layout of images."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
    """The values that the passes of a stage save for later passes, each a flat sequence."""

    w: Sequence[Tensor]
    num_tasks: int  # number of tasks side by side
    num_norm_examples: int | None = None  # leading examples for batch-norm statistics; None: all
    wanted: Sequence[bool] | None = None  # parameters whose gradients are needed; None: all
    needs_dx: bool = True
    needs_backward: bool = True  # whether a pass follows the forward pass
    needs_tangents: bool = True  # whether tangents follow the backward pass
    saved: Sequence[Any] = ()  # by the forward pass
    dy: Sequence[Any] = ()  # by the backward pass
    dots: Sequence[Any] = ()  # by the tangent
    parts: list[Tape] = field(default_factory=list)  # the tapes of the parts of a composed stage

    def add_part(self, w: Sequence[Tensor], **changes: Any) -> Tape:
        """Append the tape of the next part of a composed stage."""
        part = replace(self, w=w, wanted=None, parts=[], **changes)
        self.parts.append(part)
        return part

    def map(self, change: Callable[[Any], Any], **changes: Any) -> Tape:
        """Return a copy with a function applied to every value, including the parts."""
        w, saved, dy = ([change(v) for v in values] for values in (self.w, self.saved, self.dy))
        parts = [part.map(change, **changes) for part in self.parts]
        return replace(self, w=w, saved=saved, dy=dy, parts=parts, **changes)

    def save(self, *values: Any) -> None:
        """Save values of the forward pass."""
        self.saved = values if self.needs_backward else ()

    def save_dy(self, *values: Any) -> None:
        """Save values of the backward pass."""
        self.dy = values if self.needs_tangents else ()


class Stage(abc.ABC):
    """A differentiable part of a network.

    Attributes:
        names: the names of its parameters, in the order in which the passes take them.
    """

    names: tuple[str, ...] = ()

    @abc.abstractmethod
    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        """Return y."""

    @abc.abstractmethod
    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        """Return dx and dw; None for gradients that are not wanted."""

    @abc.abstractmethod
    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        """Return ydot."""

    @abc.abstractmethod
    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        """Return dxdot and dwdot."""


def to_stage_layout(images: Tensor) -> Tensor:
    """Convert ``[task, example, channel, height, width]`` to the layout of the stages.

    Vectors ``[task, example, feature]`` have no other layout.
    """
    if images.ndim == 3:
        return images.contiguous()
    _, num_examples, _, height, width = images.shape
    rows = images.permute(1, 3, 4, 0, 2).reshape(num_examples, height, width, -1)
    # For a single task, `reshape` returns a view with another memory layout.
    return rows.contiguous()


def from_stage_layout(images: Tensor, num_tasks: int) -> Tensor:
    """Invert `to_stage_layout`."""
    if images.ndim == 3:
        return images
    apart: Tensor = images.unflatten(3, (num_tasks, -1))
    return apart.permute(3, 0, 4, 1, 2)
