"""Memory modes: store the inner steps for the outer gradient, or recompute them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MemoryMode = Literal["store", "recompute"]
"""Store everything that the outer gradient needs of each step, or only the step's weights."""

Compute = Callable[..., tuple[Tensor, Tensor]]
"""Takes a sequence of tensors, and the option `graph`; returns losses and gradients."""


def recomputed(
    compute: Compute, stacked: Sequence[Tensor], shared: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return ``compute((*stacked, *shared), graph=True)``, but let autograd save only its inputs.

    The outer gradient recomputes the results, task by task, with the same random numbers. Tensors
    in `stacked` have a task dimension.
    """
    tasks = [slice(task, task + 1) for task in range(len(stacked[0]))]
    results = [_Recomputed.apply(compute, *(t[task] for t in stacked), *shared) for task in tasks]  # type: ignore[no-untyped-call]
    losses, grads = zip(*results, strict=True)
    return torch.cat(losses), torch.cat(grads)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Compute, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        ctx.compute, ctx.random = compute, RandomState(tensors[0].device)
        ctx.save_for_backward(*tensors)
        losses, grads = compute(tensors, graph=False)
        ctx.mark_non_differentiable(losses)
        return losses, grads.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, v: Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[1:]
        pairs = zip(ctx.saved_tensors, needed, strict=True)
        tensors = [tensor.detach().requires_grad_(need) for tensor, need in pairs]
        with torch.enable_grad(), ctx.random.restored():
            _, grads = ctx.compute(tensors, graph=True)
        if not grads.requires_grad:
            # The gradient of a loss that is linear in the weights is constant.
            return (None,) * len(ctx.needs_input_grad)
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        found = iter(torch.autograd.grad(grads, wanted, v, allow_unused=True))
        return (None, *(next(found) if need else None for need in needed))


class RandomState:
    """The state of torch's random number generators of the CPU and a device."""

    def __init__(self, device: torch.device) -> None:
        self._generators: list[tuple[Callable[[], Tensor], Callable[..., None]]]
        self._generators = [(torch.get_rng_state, torch.set_rng_state)]
        if device.type == "cuda":
            cuda = partial(torch.cuda.get_rng_state, device)
            self._generators.append((cuda, partial(torch.cuda.set_rng_state, device=device)))
        elif device.type == "mps":
            # torch.random.fork_rng does not support it.
            self._generators.append((torch.mps.get_rng_state, torch.mps.set_rng_state))
        self._states = [get() for get, _ in self._generators]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore this state within the context, and the current state after it."""
        outside = [get() for get, _ in self._generators]
        self._write(self._states)
        try:
            yield
        finally:
            self._write(outside)

    def _write(self, states: list[Tensor]) -> None:
        for (_, put), state in zip(self._generators, states, strict=True):
            put(state)
