"""Networks of stages under autograd, and the gradient of a loss as one operation.

`network` can be differentiated twice: its backward pass is an operation too, whose own backward
is the tangent. With v the gradient in (dx, dw), the gradient in dy is the tangent of y in the
direction v, and the gradient in (x, w) is the tangent of (dx, dw) there, at a constant dy, as the
Hessian of dy' f in (x, w) is symmetric.

`network_gradients` includes the loss. The Hessian H of the loss in w is symmetric, so the outer
gradient v' H is the tangent of the gradient in the direction v, in one forward and one backward
pass; autograd computes the derivative of the loss at the outputs, which are small.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from alfa.ops._losses import Loss, check_losses
from alfa.ops.stages import Gradients, Maybe, Stage, Tape, from_stage_layout, to_stage_layout


class Plan(NamedTuple):
    """A network, and how it processes its tasks."""

    stage: Stage
    at_once: int = 1  # number of tasks side by side
    num_norm_examples: int | None = None  # leading examples for batch-norm statistics; None: all

    def groups(self, num_tasks: int) -> Iterator[slice]:
        for first in range(0, num_tasks, self.at_once):
            yield slice(first, min(first + self.at_once, num_tasks))

    def forward(self, x: Tensor, w: Sequence[Tensor], **needs: Any) -> tuple[Tensor, Tape]:
        """Return the outputs of a group of tasks and their tape, which has fields `needs`."""
        tape = Tape(w, x.shape[0], self.num_norm_examples, **needs)
        y = self.stage.forward(to_stage_layout(x), tape)
        return from_stage_layout(y, tape.num_tasks), tape


def network(plan: Plan, x: Tensor, w: Sequence[Tensor]) -> Tensor:
    """Return the outputs of a network on every task; can be differentiated twice.

    `x` is ``[task, example, channel, height, width]`` or ``[task, example, feature]``; `w` has the
    parameters in the order of the network's names, ``[task, ...]`` each.
    """
    if not torch.is_grad_enabled():
        # An autograd function cannot see inside whether gradients are enabled.
        x, w = x.detach(), [p.detach() for p in w]
    return _Network.apply(plan, x, *w)  # type: ignore[no-any-return, no-untyped-call]


def network_gradients(
    plan: Plan,
    x: Tensor,
    targets: Tensor,
    w: Sequence[Tensor],
    loss: Loss,
    wanted: Sequence[bool],
) -> tuple[Tensor, list[Tensor]]:
    """Return each task's loss, as a constant, and its gradients in the wanted parameters.

    The gradients can be differentiated once, in every parameter. `x` needs no gradient, and the
    loss has no trained parameters.
    """
    if not torch.is_grad_enabled():
        w = [p.detach() for p in w]
    results = _Gradients.apply(plan, loss, tuple(wanted), x, targets, *w)  # type: ignore[no-untyped-call]
    return results[0], list(results[1:])


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, x: Tensor, *w: Tensor) -> Tensor:
        keep = any(ctx.needs_input_grad)
        needs = {"needs_backward": keep, "needs_dx": ctx.needs_input_grad[1]}
        outputs, tapes = [], []
        for tasks in plan.groups(x.shape[0]):
            output, tape = plan.forward(x[tasks], [p[tasks] for p in w], **needs)
            outputs.append(output)
            if keep:
                tapes.append(tape)
            del tape  # free it before the next tasks run
        _save(ctx, tapes, x, *w)
        ctx.plan = plan
        return torch.cat(outputs)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        # If this pass is recorded, it must save the values that the tangents need.
        packed = ctx.plan, ctx.skeleton, ctx.num_inputs, torch.is_grad_enabled()
        gradients = _NetworkBackward.apply(packed, dy, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return (None, *gradients)


class _NetworkBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Any, dy: Tensor, *tensors: Tensor) -> tuple[Any, ...]:
        plan, skeleton, num_inputs, keep = packed
        (x, *w), tapes = _unpack(skeleton, num_inputs, tensors, needs_tangents=keep)
        dx = torch.empty_like(x) if tapes[0].needs_dx else None
        dw = [torch.empty_like(p) for p in w]
        for tape, tasks in zip(tapes, plan.groups(x.shape[0]), strict=True):
            gradients = plan.stage.backward(to_stage_layout(dy[tasks]), tape)
            _write_gradients(dx, dw, tasks, gradients, tape)
        if keep:
            _save(ctx, tapes, x, *w)
        # Directions that nothing depends on are then None, and cost nothing.
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.num_saved = plan, len(tensors) - num_inputs
        return (dx, *dw)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, vx: Maybe, *v: Maybe) -> tuple[Any, ...]:
        (x, *w), tapes = _restore(ctx)
        ddys = []
        dx = torch.zeros_like(x) if tapes[0].needs_dx else None
        dw = [torch.zeros_like(p) for p in w]
        for tape, tasks in zip(tapes, ctx.plan.groups(x.shape[0]), strict=True):
            xdot = None if vx is None else to_stage_layout(vx[tasks])
            wdot = [None if dot is None else dot[tasks].contiguous() for dot in v]
            ydot = ctx.plan.stage.tangent(xdot, wdot, tape)
            ddys.append(None if ydot is None else from_stage_layout(ydot, tape.num_tasks))
            gradients = ctx.plan.stage.backward_tangent(None, wdot, tape)
            _write_gradients(dx, dw, tasks, gradients, tape)
        # Either every task has a tangent or none has.
        ddy = None if ddys[0] is None else torch.cat([d for d in ddys if d is not None])
        return None, ddy, dx, *dw, *(None,) * ctx.num_saved


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        loss: Loss,
        wanted: tuple[bool, ...],
        x: Tensor,
        targets: Tensor,
        *w: Tensor,
    ) -> tuple[Tensor, ...]:
        keep = any(ctx.needs_input_grad)
        needs = {"wanted": wanted, "needs_dx": False, "needs_tangents": keep}
        losses, tapes, ends = [], [], []
        gradients = [torch.empty_like(p) for p, want in zip(w, wanted, strict=True) if want]
        for tasks in plan.groups(x.shape[0]):
            outputs, tape = plan.forward(x[tasks], [p[tasks] for p in w], **needs)
            outputs.requires_grad_()
            with torch.enable_grad():
                group_losses = check_losses(loss(outputs, targets[tasks]), len(outputs))
                (dy,) = torch.autograd.grad(group_losses.sum(), outputs, create_graph=keep)
            losses.append(group_losses.detach())
            _, dw = plan.stage.backward(to_stage_layout(dy.detach()), tape)
            dw = [p for p, want in zip(dw, wanted, strict=True) if want]
            _write_gradients(None, gradients, tasks, (None, dw), tape)
            if keep:
                tapes.append(tape)
                ends.append((outputs, dy))
            del tape, dw  # free them before the next tasks run
        _save(ctx, tapes, *w)
        ctx.plan, ctx.wanted, ctx.ends = plan, wanted, ends
        joined = torch.cat(losses)
        ctx.mark_non_differentiable(joined)
        ctx.set_materialize_grads(False)
        return joined, *gradients

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Maybe, *v: Maybe) -> tuple[Any, ...]:
        w, tapes = _restore(ctx)
        given = iter(v)
        dots = [next(given) if want else None for want in ctx.wanted]
        products = [torch.zeros_like(p) for p in w]
        groups = zip(tapes, ctx.plan.groups(len(w[0])), ctx.ends, strict=True)
        for tape, tasks, (outputs, dy) in groups:
            wdot = [None if dot is None else dot[tasks].contiguous() for dot in dots]
            ydot = ctx.plan.stage.tangent(None, wdot, tape)
            dydot: Maybe = None
            if ydot is not None and dy.requires_grad:
                (dydot,) = torch.autograd.grad(
                    dy,
                    outputs,
                    from_stage_layout(ydot, tape.num_tasks),
                    allow_unused=True,
                    retain_graph=True,
                )
                dydot = None if dydot is None else to_stage_layout(dydot)
            gradients = ctx.plan.stage.backward_tangent(dydot, wdot, tape)
            _write_gradients(None, products, tasks, gradients, tape)
        return (None, None, None, None, None, *products)


def _write_gradients(
    dx: Maybe, dw: list[Tensor], tasks: slice, gradients: Gradients, tape: Tape
) -> None:
    """Write the gradients of a group of tasks to the gradients of all tasks."""
    group_dx, group_dw = gradients
    if dx is not None and group_dx is not None:
        dx[tasks] = from_stage_layout(group_dx, tape.num_tasks)
    for all_tasks, gradient in zip(dw, group_dw, strict=True):
        if gradient is not None:
            all_tasks[tasks] = gradient


class _Slot(int):
    """The index of a tensor that autograd saves."""


def _save(ctx: Any, tapes: list[Tape], *inputs: Tensor) -> None:
    """Pass all tensors to autograd, which frees them as soon as they have been used."""
    tensors = list(inputs)

    def slot(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        tensors.append(value)
        return _Slot(len(tensors) - 1)

    ctx.skeleton, ctx.num_inputs = [tape.map(slot) for tape in tapes], len(inputs)
    ctx.save_for_backward(*tensors)


def _restore(ctx: Any) -> tuple[Sequence[Tensor], list[Tape]]:
    """Return the inputs and the tapes."""
    # Every access to `saved_tensors` calls the saved-tensor hooks of the user.
    return _unpack(ctx.skeleton, ctx.num_inputs, ctx.saved_tensors)


def _unpack(
    skeleton: list[Tape], num_inputs: int, tensors: Sequence[Tensor], **needs: bool
) -> tuple[Sequence[Tensor], list[Tape]]:
    """Return the inputs, and the tapes with tensors in place of their slots."""

    def tensor(value: Any) -> Any:
        return tensors[value] if type(value) is _Slot else value

    return tensors[:num_inputs], [tape.map(tensor, **needs) for tape in skeleton]
