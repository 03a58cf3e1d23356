"""Stages that are composed of stages."""

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain, islice
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
    """Stages that run one after the other.

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
            needs_dx = tape.needs_dx or number > 0
            part = tape.add_part(w, needs_backward=needs_backward, needs_dx=needs_dx)
            x = stage.forward(x, part)
        return x

    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        gradient: Maybe = dy
        dws: list[Maybe] = []
        first = self._first_wanted(tape)
        for stage, part in reversed(list(zip(self.stages, tape.parts, strict=True))[first:]):
            assert gradient is not None
            gradient, dw = stage.backward(gradient, part)
            dws = dw + dws
        unwanted: list[Maybe] = [None] * (len(self.names) - len(dws))
        return gradient if first == 0 else None, unwanted + dws

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        for stage, dots, part in zip(self.stages, self.by_stage(wdot), tape.parts, strict=True):
            xdot = stage.tangent(xdot, dots, part)
        return xdot

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        dws: list[Maybe] = []
        parts = zip(self.stages, self.by_stage(wdot), tape.parts, strict=True)
        for stage, dots, part in reversed(list(parts)):
            dydot, dw = stage.backward_tangent(dydot, dots, part)
            dws = dw + dws
        return dydot, dws


@final
class Sum(_Composed):
    """The sum of stages that have the same input."""

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        parts = zip(self.stages, self.by_stage(tape.w), strict=True)
        return reduce(torch.add, (stage.forward(x, tape.add_part(w)) for stage, w in parts))

    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        parts = zip(self.stages, tape.parts, strict=True)
        return _add_inputs(stage.backward(dy, part) for stage, part in parts)

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        parts = zip(self.stages, self.by_stage(wdot), tape.parts, strict=True)
        return reduce(_add, (stage.tangent(xdot, dots, part) for stage, dots, part in parts))

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        parts = zip(self.stages, self.by_stage(wdot), tape.parts, strict=True)
        return _add_inputs(stage.backward_tangent(dydot, dots, part) for stage, dots, part in parts)


def _add_inputs(gradients: Iterable[Gradients]) -> Gradients:
    """Add the gradients in the common input, and join those in the parameters."""
    dxs, dws = zip(*gradients, strict=True)
    return reduce(_add, dxs), list(chain.from_iterable(dws))


@final
class Split(Stage):
    """A stage that processes `num_parts` consecutive parts of the images separately.

    Parts have equal size except the last. The output must have as many images as the input.
    """

    def __init__(self, stage: Stage, num_parts: int) -> None:
        self.stage, self.num_parts = stage, num_parts
        self.names = stage.names

    def forward(self, x: Tensor, tape: Tape) -> Tensor:
        chunks = x.chunk(self.num_parts)
        return torch.cat([self.stage.forward(images, tape.add_part(tape.w)) for images in chunks])

    def backward(self, dy: Tensor, tape: Tape) -> Gradients:
        parts = self._parts(dy, tape)
        return _join_images([self.stage.backward(images, part) for images, part in parts])

    def tangent(self, xdot: Maybe, wdot: Dots, tape: Tape) -> Maybe:
        parts = self._parts(xdot, tape)
        return _cat([self.stage.tangent(images, wdot, part) for images, part in parts])

    def backward_tangent(self, dydot: Maybe, wdot: Dots, tape: Tape) -> Gradients:
        parts = self._parts(dydot, tape)
        passes = [self.stage.backward_tangent(images, wdot, part) for images, part in parts]
        return _join_images(passes)

    def _parts(self, images: Maybe, tape: Tape) -> Iterable[tuple[Any, Tape]]:
        count = len(tape.parts)
        chunks = [None] * count if images is None else images.chunk(self.num_parts)
        return zip(chunks, tape.parts, strict=True)


def _join_images(gradients: Sequence[Gradients]) -> Gradients:
    """Concatenate the gradients in the images, and add the gradients in the parameters."""
    dxs, dws = zip(*gradients, strict=True)
    return _cat(dxs), [reduce(_add, dw) for dw in zip(*dws, strict=True)]


def _cat(parts: Sequence[Maybe]) -> Maybe:
    """Concatenate the parts, which are either all None or all tensors."""
    return None if parts[0] is None else torch.cat([part for part in parts if part is not None])


def _add(first: Maybe, second: Maybe) -> Maybe:
    """Return a new tensor, because another owner may hold a term, such as the input of a sum."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
