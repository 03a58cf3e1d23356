"""Memory modes: whether the outer gradient stores or recomputes the inner steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.types import Params

MemoryMode = Literal["store", "recompute"]
"""Store everything that the outer gradient needs of each step, or only the step's weights."""


@dataclass(frozen=True)
class SupportAt:
    """The tensors that a support gradient depends on; `of_loss` are the loss's parameters."""

    params: Params
    x: Tensor
    y: Tensor
    shared: dict[str, Tensor]
    of_loss: dict[str, Tensor]

    def tensors(self) -> tuple[Tensor, ...]:
        more = (*self.shared.values(), *self.of_loss.values())
        return self.params.flat, self.x, self.y, *more

    def tasks(self) -> Iterator[SupportAt]:
        """One for each task."""
        for task in range(len(self.x)):
            here = slice(task, task + 1)
            params = self.params.like(self.params.flat[here])
            yield replace(self, params=params, x=self.x[here], y=self.y[here])

    def like(self, tensors: Sequence[Tensor]) -> SupportAt:
        """Replace the tensors, in the order of `tensors()`."""
        flat, x, y, *more = tensors
        named = iter(more)
        shared = {name: next(named) for name in self.shared}
        of_loss = {name: next(named) for name in self.of_loss}
        return SupportAt(self.params.like(flat), x, y, shared, of_loss)


def recomputed(
    compute: Callable[..., tuple[Tensor, Params]], at: SupportAt
) -> tuple[Tensor, Params]:
    """The results of ``compute(at, graph=True)``, but autograd saves only their inputs.

    The outer gradient recomputes them, task by task, with the same random numbers, such as those of
    dropout.
    """
    losses, rows = [], []
    for task in at.tasks():

        def run(tensors: Sequence[Tensor], *, graph: bool, task: SupportAt = task) -> Any:
            losses, grads = compute(task.like(tensors), graph=graph)
            return losses, grads.flat

        loss, row = _Recomputed.apply(run, *task.tensors())  # type: ignore[no-untyped-call]
        losses.append(loss)
        rows.append(row)
    return torch.cat(losses), at.params.like(torch.cat(rows))


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, compute: Callable[..., tuple[Tensor, Tensor]], *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.compute, ctx.random = compute, RandomState(tensors[0].device)
        ctx.save_for_backward(*tensors)
        losses, grads = compute(tensors, graph=False)
        ctx.mark_non_differentiable(losses)
        return losses, grads.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, v: Tensor) -> tuple[Any, ...]:
        tensors = [
            tensor.detach().requires_grad_(needed)
            for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        ]
        with torch.enable_grad(), ctx.random.restored():
            _, grads = ctx.compute(tensors, graph=True)
        if not grads.requires_grad:
            # The gradient of a loss that is linear in the weights is constant.
            return (None,) * len(ctx.needs_input_grad)
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        found = iter(torch.autograd.grad(grads, wanted, v, allow_unused=True))
        return (None, *(next(found) if tensor.requires_grad else None for tensor in tensors))


class RandomState:
    """The state of torch's random number generators, to draw the same numbers again.

    Args:
        device: a device to include besides the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._get: list[Callable[[], Tensor]] = [torch.get_rng_state]
        self._set: list[Callable[[Tensor], None]] = [torch.set_rng_state]
        if device.type == "cuda":
            self._get.append(partial(torch.cuda.get_rng_state, device))
            self._set.append(partial(torch.cuda.set_rng_state, device=device))
        elif device.type == "mps":
            # torch.random.fork_rng does not support it.
            self._get.append(torch.mps.get_rng_state)
            self._set.append(torch.mps.set_rng_state)
        self._states = self._read()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore this state within the context, and the current one afterwards."""
        outside = self._read()
        self._write(self._states)
        try:
            yield
        finally:
            self._write(outside)

    def _read(self) -> list[Tensor]:
        return [get() for get in self._get]

    def _write(self, states: list[Tensor]) -> None:
        for put, state in zip(self._set, states, strict=True):
            put(state)
