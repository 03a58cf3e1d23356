"""The inner loop (Algorithm 1, lines 5 to 12)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from alfa.errors import ConfigError, check_choice
from alfa.inits import Init
from alfa.models import Model, OverTasks, run_stacked
from alfa.ops import Loss, apply_rates
from alfa.rules import Rule
from alfa.types import Memory, Order, Params, Rates


@dataclass(frozen=True)
class Adapted:
    """A stack of adapted models.

    Attributes:
        params: theta'_i, ``[task, ...]`` for each adapted layer.
        shared: the parameters that all tasks share, without a task dimension.
        support_losses: ``[step, task]``, each taken before its step.
        rates: the rates of each step.
    """

    params: Params
    shared: dict[str, Tensor]
    support_losses: Tensor
    rates: tuple[Rates, ...]
    model: nn.Module
    over_tasks: OverTasks = "loop"

    def predict(self, x: Tensor) -> Tensor:
        """Outputs of every task's own model, ``[task, example, ...]``."""
        return run_stacked(self.model, self.params, self.shared, x, self.over_tasks)


def adapt(
    model: nn.Module,
    support_x: Tensor,
    support_y: Tensor,
    *,
    init: Init,
    rule: Rule,
    loss: Loss,
    num_steps: int = 5,
    order: Order = "second",
    over_tasks: OverTasks = "loop",
) -> Adapted:
    """Adapt a model to every task of a stack, by any rule from any initialization.

    Args:
        model: any module.
        support_x: ``[task, support, ...]``.
        support_y: ``[task, support, ...]``.
        init: gives theta_{i,0}.
        rule: gives the rates of every step.
        loss: outputs and targets ``[task, example, ...]`` to losses ``[task]``.
        num_steps: S, may differ from the number in training.
        order: ``"second"``, ``"first"``, or ``"none"`` for no outer gradient at all.
        over_tasks: ``"loop"`` or ``"vmap"``, for a module that is not an `alfa.models.Model`.

    Returns:
        The adapted parameters, the support loss before each step, and the rates used.

    Example:
        >>> import torch
        >>> from alfa import MLP, SGD, LearnedInit, adapt, mse
        >>> model = MLP((1,), 1, hidden=[40, 40])
        >>> init = LearnedInit(model)
        >>> x = torch.linspace(-1, 1, 10).reshape(1, 10, 1).repeat(3, 1, 1)  # three tasks
        >>> adapted = adapt(model, x, x.sin(), init=init, rule=SGD(init.layers), loss=mse)
        >>> adapted.predict(x).shape, adapted.support_losses.shape
        (torch.Size([3, 10, 1]), torch.Size([5, 3]))
    """
    _check(support_x, support_y, num_steps, order, over_tasks)
    if rule.layers != init.layers:
        raise ConfigError(
            f"the rule was made for the layers {dict(rule.layers)}, but the init has "
            f"{dict(init.layers)}; make it with {type(rule).__name__}(init.layers)."
        )
    num_tasks = support_x.shape[0]
    if not torch.is_grad_enabled():
        order = "none"

    def losses_and_gradients(params: Params) -> tuple[Tensor, Params]:
        # Where nothing before this step is trained, its gradients need no graph either.
        before = (params.flat, support_x, support_y, *shared.values())
        graph = order == "second" and any(tensor.requires_grad for tensor in before)
        at = params if params.flat.requires_grad and graph else _leaf(params)
        trained_data = support_x.requires_grad or support_y.requires_grad
        if isinstance(model, Model) and not trained_data:
            with torch.set_grad_enabled(graph):
                fast = model.support_gradients(at, shared, support_x, support_y, loss)
            if fast is not None:
                return fast
        with torch.enable_grad(), _differentiable_attention(graph):
            outputs = run_stacked(model, at, shared, support_x, over_tasks)
            losses = _checked(loss(outputs, support_y), num_tasks)
            return losses.detach(), _gradients(losses, at, graph=graph)

    with torch.set_grad_enabled(order != "none"):
        shared = init.shared()
        if order == "none":
            shared = {name: parameter.detach() for name, parameter in shared.items()}
        params = init.start(num_tasks, lambda at: losses_and_gradients(at)[1])
        losses: list[Tensor] = []
        rates: list[Rates] = []
        memory: Memory = ()
        for step in range(num_steps):
            step_losses, grads = losses_and_gradients(params)
            step_rates = rule.rates(step, params, grads, memory)
            params = apply_rates(params, grads, step_rates)  # Eq. 4
            memory = step_rates.memory
            losses.append(step_losses)
            rates.append(step_rates)
    return Adapted(
        params=params,
        shared=shared,
        support_losses=torch.stack(losses) if losses else params.flat.new_empty(0, num_tasks),
        rates=tuple(rates),
        model=model,
        over_tasks=over_tasks,
    )


def _differentiable_attention(graph: bool) -> AbstractContextManager[None]:
    # Torch's fused attention can be differentiated once only; the plain one any number of times.
    return sdpa_kernel(SDPBackend.MATH) if graph else nullcontext()


def _leaf(params: Params) -> Params:
    return params.like(params.flat.detach().requires_grad_())


def _gradients(losses: Tensor, params: Params, *, graph: bool) -> Params:
    grad: Tensor | None = None
    if losses.requires_grad:
        # The tasks do not meet before this sum, so it gives every task its own gradient.
        (grad,) = torch.autograd.grad(
            losses.sum(), params.flat, create_graph=graph, allow_unused=True
        )
    if grad is None:
        raise ConfigError(
            "the support loss does not depend on the adapted parameters "
            f"({', '.join(params)}); check `adapt` and the model's forward."
        )
    return params.like(grad)


def _checked(losses: Tensor, num_tasks: int) -> Tensor:
    if losses.shape != (num_tasks,):
        raise ConfigError(
            f"the loss must return one value per task, of shape ({num_tasks},), but returned "
            f"{tuple(losses.shape)}; lift a loss of a single task with alfa.per_task(loss)."
        )
    return losses


def _check(
    support_x: Tensor, support_y: Tensor, num_steps: int, order: str, over_tasks: str
) -> None:
    check_choice("order", order, ("second", "first", "none"))
    check_choice("over_tasks", over_tasks, ("loop", "vmap"))
    if num_steps < 0:
        raise ConfigError(f"`num_steps` is {num_steps}, but must be 0 or more.")
    if torch.is_inference_mode_enabled():
        raise ConfigError(
            "adaptation needs gradients, which torch.inference_mode() switches off for good; "
            "use torch.no_grad() or order='none' instead."
        )
    if support_x.ndim < 2 or support_x.shape[:2] != support_y.shape[:2]:
        raise ConfigError(
            "`support_x` and `support_y` must both begin with the dimensions [task, example], "
            f"but are of shape {tuple(support_x.shape)} and {tuple(support_y.shape)}."
        )
