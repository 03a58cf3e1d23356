"""The inner loop (Algorithm 1, lines 5 to 12)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from alfa.errors import ConfigError, check_choice
from alfa.inits import Init, Support
from alfa.learner._memory import MemoryMode, SupportAt, recomputed
from alfa.models import (
    BatchNorm,
    ExecutionMode,
    Model,
    OverTasks,
    embed_stacked,
    frozen_module,
    run_stacked,
)
from alfa.ops import Loss, apply_rates, check_loss, check_losses
from alfa.rules import Rule
from alfa.types import Order, Params, Rates, State


@dataclass(frozen=True)
class Adapted:
    """A stack of adapted models.

    Attributes:
        params: theta'_i, ``[task, ...]`` for each adapted layer.
        shared: the parameters that all tasks share, without a task dimension.
        support_losses: ``[step, task]``, each taken before its step.
        rates: the rates of each step.
        model: the model that the parameters belong to.
        over_tasks: how the model processes the tasks.
        norm_support: the support sets if batch norm is inductive.
        memory: whether predictions are stored or recomputed for their gradient.
    """

    params: Params
    shared: dict[str, Tensor]
    support_losses: Tensor
    rates: tuple[Rates, ...]
    model: nn.Module
    over_tasks: OverTasks = "auto"
    norm_support: Tensor | None = None
    memory: MemoryMode = "store"

    def predict(self, x: Tensor) -> Tensor:
        """Outputs of every task's own model, ``[task, example, ...]``.

        Raises:
            ConfigError: if the number of tasks differs.
        """
        if len(x) != self.params.num_tasks:
            raise ConfigError(
                f"`x` must have the examples of {self.params.num_tasks} adapted tasks, in their "
                f"order, got those of {len(x)}."
            )
        if self.memory == "store" or not torch.is_grad_enabled():
            return self._predict(x, slice(None))
        # Each task's pass is recomputed when its gradient is needed.
        tasks = [slice(task, task + 1) for task in range(len(x))]
        return torch.cat([checkpoint(self._predict, x, t, use_reentrant=False) for t in tasks])

    def frozen(self, x: Tensor, *, task: int = 0) -> nn.Module:
        """One task's model as an ordinary torch module, which processes each example independently.

        Args:
            x: the task's support set, ``[support, ...]``, for the statistics of batch norm. If a
                module uses a batch-norm layer more than once, alfa warns that examples depend on
                each other.
            task: index of the task.

        Raises:
            ConfigError: if the model has no such form.

        Example:
            >>> import torch
            >>> from alfa import Conv4, PrototypeHead, SGD, adapt, cross_entropy
            >>> model = Conv4((3, 16, 16), 5)
            >>> init = PrototypeHead(model)
            >>> x, y = torch.randn(1, 6, 3, 16, 16), torch.arange(3).repeat(2)[None]
            >>> adapted = adapt(model, x, y, init=init, rule=SGD(init.layers), loss=cross_entropy)
            >>> adapted.frozen(x[0])(torch.randn(1, 3, 16, 16)).shape  # one image
            torch.Size([1, 3])
        """
        params = {name: p.detach() for name, p in self.shared.items()}
        params |= {name: tensor[task].detach() for name, tensor in self.params.items()}
        if isinstance(self.model, Model):
            return self.model.frozen(params, x)
        return frozen_module(self.model, params, x)

    def _predict(self, x: Tensor, tasks: slice) -> Tensor:
        params, x = self.params.like(self.params.flat[tasks]), x[tasks]
        if self.norm_support is None:
            return run_stacked(self.model, params, self.shared, x, ExecutionMode(self.over_tasks))
        support = self.norm_support[tasks]
        num_support = support.shape[1]
        together = torch.cat([support, x], dim=1)
        mode = ExecutionMode(self.over_tasks, num_support)
        return run_stacked(self.model, params, self.shared, together, mode)[:, num_support:]


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
    over_tasks: OverTasks = "auto",
    batch_norm: BatchNorm = "transductive",
    memory: MemoryMode = "store",
) -> Adapted:
    """Adapt a model to every task of a stack, by any rule from any initialization.

    Args:
        model: any module.
        support_x: ``[task, support, ...]``.
        support_y: ``[task, support, ...]``.
        init: gives theta_{i,0}.
        rule: gives the rates of every step.
        loss: outputs and targets ``[task, example, ...]`` to losses ``[task]``; a loss with trained
            parameters must be a module.
        num_steps: S, may differ from the number in training.
        order: ``"second"``, ``"first"``, or ``"none"`` for no outer gradient at all.
        over_tasks: ``"loop"`` for one task after the other, ``"stack"`` for all at once, which
            for a module that is not an `alfa.models.Model` means `torch.func.vmap`, or ``"auto"``.
        batch_norm: ``"transductive"`` normalizes queries by their own statistics, as the paper
            does, ``"inductive"`` by those of the support set.
        memory: ``"store"`` saves everything that the outer gradient needs of every step,
            ``"recompute"`` only its weights, for the same gradient in less memory and more time.

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
    check_loss(loss)
    check_options(model, order=order, over_tasks=over_tasks, batch_norm=batch_norm, memory=memory)
    _check_support(support_x, support_y, num_steps)
    if rule.layers != init.layers:
        raise ConfigError(
            f"the rule was made for the layers {dict(rule.layers)}, but the init has "
            f"{dict(init.layers)}; make it with {type(rule).__name__}(init.layers)."
        )
    num_tasks = support_x.shape[0]
    if not torch.is_grad_enabled():
        order = "none"
    if order == "none":
        # Without an outer gradient there is nothing to recompute.
        memory = "store"

    def compute(at: SupportAt, *, graph: bool) -> tuple[Tensor, Params]:
        return _losses_and_gradients(model, at, loss, ExecutionMode(over_tasks), graph=graph)

    def losses_and_gradients(params: Params) -> tuple[Tensor, Params]:
        at = SupportAt(params, support_x, support_y, shared, of_loss)
        # If nothing before this step is trained, its gradients need no graph.
        graph = order == "second" and any(tensor.requires_grad for tensor in at.tensors())
        if graph and memory == "recompute":
            return recomputed(compute, at)
        return compute(at, graph=graph)

    def gradients(params: Params) -> Params:
        return losses_and_gradients(params)[1]

    def embed(params: Params, head: str) -> Tensor:
        def embedded(flat: Tensor) -> Tensor:
            at = params.like(flat)
            return embed_stacked(model, head, at, shared, support_x, ExecutionMode(over_tasks))

        if memory == "store":
            return embedded(params.flat)
        found: Tensor = checkpoint(embedded, params.flat, use_reentrant=False)
        return found

    with torch.set_grad_enabled(order != "none"):
        shared = init.shared()
        if order == "none":
            shared = {name: parameter.detach() for name, parameter in shared.items()}
        of_loss: dict[str, Tensor] = {}
        if isinstance(loss, nn.Module):
            of_loss.update(loss.named_parameters())
        params = init.start(Support(support_x, support_y, gradients, embed))
        losses: list[Tensor] = []
        rates: list[Rates] = []
        state: State = ()
        for step in range(num_steps):
            step_losses, grads = losses_and_gradients(params)
            step_rates = rule.rates(step, params, grads, state)
            params = apply_rates(params, grads, step_rates)  # Eq. 4
            state = step_rates.state
            losses.append(step_losses)
            rates.append(step_rates)
    return Adapted(
        params=params,
        shared=shared,
        support_losses=torch.stack(losses) if losses else params.flat.new_empty(0, num_tasks),
        rates=tuple(rates),
        model=model,
        over_tasks=over_tasks,
        norm_support=support_x if batch_norm == "inductive" else None,
        memory=memory,
    )


def check_options(
    model: nn.Module, *, order: str, over_tasks: str, batch_norm: str, memory: str
) -> None:
    """Raise ConfigError unless `adapt` supports these options with the model."""
    check_choice("order", order, ("second", "first", "none"))
    check_choice("over_tasks", over_tasks, ("auto", "loop", "stack"))
    check_choice("memory", memory, ("store", "recompute"))
    check_batch_norm(model, batch_norm)


def check_batch_norm(model: nn.Module, batch_norm: str, *, name: str = "batch_norm") -> BatchNorm:
    """The choice, if the model supports it.

    Raises:
        ConfigError: if it is invalid, or the model has no batch norm that supports it.
    """
    check_choice(name, batch_norm, ("transductive", "inductive"))
    if batch_norm == "inductive" and not (isinstance(model, Model) and model.has_batch_norm):
        kind = type(model).__name__
        reason = f"{kind} has no batch norm"
        if any(isinstance(part, _BatchNorm) for part in model.modules()):
            reason = f"the batch norm of {kind} is torch's, which cannot use the support set"
        raise ConfigError(
            f"`{name}` is 'inductive', but {reason}; leave it out, or use one of alfa's backbones."
        )
    return "inductive" if batch_norm == "inductive" else "transductive"


def _losses_and_gradients(
    model: nn.Module, at: SupportAt, loss: Loss, mode: ExecutionMode, *, graph: bool
) -> tuple[Tensor, Params]:
    """Each task's support loss, as a constant, and its gradient."""
    params = at.params
    if not (graph and params.flat.requires_grad):
        params = params.like(params.flat.detach().requires_grad_())
    if isinstance(loss, nn.Module) and at.of_loss:
        loss = partial(_loss_with, loss, at.of_loss)
    trained_data = at.x.requires_grad or at.y.requires_grad
    if isinstance(model, Model) and not trained_data:
        with torch.set_grad_enabled(graph):
            fast = model.support_gradients(params, at.shared, at.x, at.y, loss, mode)
        if fast is not None:
            return fast
    # Torch's fused attention has no second derivative.
    attention = sdpa_kernel(SDPBackend.MATH) if graph else nullcontext()
    with torch.enable_grad(), attention:
        outputs = run_stacked(model, params, at.shared, at.x, mode)
        losses = check_losses(loss(outputs, at.y), len(at.x))
        return losses.detach(), _gradients(losses, params, graph=graph)


def _loss_with(
    loss: nn.Module, params: dict[str, Tensor], outputs: Tensor, targets: Tensor
) -> Tensor:
    """A loss that is a module, with other parameters."""
    losses: Tensor = functional_call(loss, params, (outputs, targets))
    return losses


def _gradients(losses: Tensor, params: Params, *, graph: bool) -> Params:
    grad: Tensor | None = None
    if losses.requires_grad:
        # The tasks are independent, so the gradient of the sum is that of each task.
        (grad,) = torch.autograd.grad(
            losses.sum(), params.flat, create_graph=graph, allow_unused=True
        )
    if grad is None:
        raise ConfigError(
            "the support loss does not depend on the adapted parameters "
            f"({', '.join(params)}); check `adapt` and the model's forward."
        )
    return params.like(grad)


def _check_support(support_x: Tensor, support_y: Tensor, num_steps: int) -> None:
    if num_steps < 0:
        raise ConfigError(f"`num_steps` must be at least 0, got {num_steps}.")
    if torch.is_inference_mode_enabled():
        raise ConfigError(
            "adaptation needs gradients, which torch.inference_mode() disables; "
            "use torch.no_grad() or order='none' instead."
        )
    if support_x.ndim < 2 or support_x.shape[:2] != support_y.shape[:2]:
        raise ConfigError(
            "`support_x` and `support_y` must both begin with the dimensions [task, example], "
            f"got the shapes {tuple(support_x.shape)} and {tuple(support_y.shape)}."
        )
