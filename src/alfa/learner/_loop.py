"""The inner loop (Algorithm 1, lines 5 to 12)."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from alfa.errors import ConfigError, check_choice
from alfa.inits import Init, Support
from alfa.learner._last_layer import last_layer_of
from alfa.learner._memory import MemoryMode, recomputed
from alfa.learner._minibatch import minibatch
from alfa.models import (
    BatchNorm,
    ExecutionMode,
    Model,
    OverTasks,
    embed_stacked,
    frozen_module,
    has_batch_norm,
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
        support_losses: ``[step, task]``, each before its step.
        rates: the rates of each step.
        model: the model that the parameters belong to.
        over_tasks: how the model processes the tasks.
        norm_support: the support sets if batch norm is inductive.
        memory: whether to store or recompute predictions for their gradient.
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
        """Return the outputs of every task's own model, ``[task, example, ...]``."""
        if len(x) != self.params.num_tasks:
            raise ConfigError(
                f"`x` must contain the examples of {self.params.num_tasks} adapted tasks in order, "
                f"got {len(x)} tasks."
            )
        if self.memory == "store" or not torch.is_grad_enabled():
            return self._predict(x, slice(None))
        tasks = [slice(task, task + 1) for task in range(len(x))]
        return torch.cat([checkpoint(self._predict, x, t, use_reentrant=False) for t in tasks])

    def frozen(self, x: Tensor, *, task: int = 0) -> nn.Module:
        """Return one task's model as a torch module that processes each example independently.

        Args:
            x: the task's support set, ``[support, ...]``, for the statistics of batch norm. If a
                module uses a batch-norm layer more than once, alfa warns that examples depend on
                each other.
            task: index of the task.

        Raises:
            ConfigError: if the model has no such form.

        Examples:
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
        num_support: int | None = None
        if self.norm_support is not None:
            num_support = self.norm_support.shape[1]
            x = torch.cat([self.norm_support[tasks], x], dim=1)
        mode = ExecutionMode(self.over_tasks, num_support)
        return run_stacked(self.model, params, self.shared, x, mode)[:, num_support:]


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
    batch_size: int | None = None,
) -> Adapted:
    """Adapt a model to every task of a stack, with any rule and any initialization.

    Args:
        model: any module.
        support_x: ``[task, support, ...]``.
        support_y: ``[task, support, ...]``.
        init: returns theta_{i,0}.
        rule: returns the rates of every step.
        loss: maps outputs and targets ``[task, example, ...]`` to losses ``[task]``; must be a
            module if it has trained parameters.
        num_steps: S, at least 0; may differ from the number in training.
        order: ``"second"``, ``"first"``, or ``"none"`` for no outer gradient.
        over_tasks: ``"loop"`` for one task after the other, ``"stack"`` for all tasks at once
            (`torch.func.vmap`, unless the module is an `alfa.models.Model`), or ``"auto"``.
        batch_norm: ``"transductive"`` normalizes queries by their own statistics, as in the paper,
            ``"inductive"`` by the statistics of the support set.
        memory: ``"store"`` saves everything that the outer gradient needs of every step;
            ``"recompute"`` saves only the weights, and needs less memory and more time for the same
            gradient.
        batch_size: number of support examples in each step, which go through the support set in a
            fixed random order, and then in another one; None for all.

    Returns:
        The adapted parameters, the support loss before each step, and the rates.

    Examples:
        >>> import torch
        >>> from alfa import MLP, SGD, LearnedInit, adapt, mse
        >>> model = MLP((1,), 1, hidden=[40, 40])
        >>> init = LearnedInit(model)
        >>> x = torch.linspace(-1, 1, 10).reshape(1, 10, 1).repeat(3, 1, 1)  # three tasks
        >>> adapted = adapt(model, x, x.sin(), init=init, rule=SGD(init.layers), loss=mse)
        >>> adapted.predict(x).shape, adapted.support_losses.shape
        (torch.Size([3, 10, 1]), torch.Size([5, 3]))
    """
    inner_loop = _InnerLoop(
        model,
        support_x,
        support_y,
        init,
        rule,
        loss,
        order,
        over_tasks,
        batch_norm,
        memory,
        batch_size,
    )
    # Only the last position is held.
    (last,) = deque(inner_loop.positions(num_steps), maxlen=1)
    return inner_loop.adapted(last)


def support_gradients(
    adapted: Adapted, support_x: Tensor, support_y: Tensor, **options: Any
) -> Params:
    """Return the gradients of the support losses at adapted weights, of order ``"second"``.

    They are differentiable in the weights, the shared parameters, and the parameters of the loss.
    The options are as in `adapt`.
    """
    inner_loop = _InnerLoop(adapted.model, support_x, support_y, **options)
    return inner_loop._losses_and_gradients(adapted.params, adapted.shared)[1]


def steps(
    model: nn.Module, support_x: Tensor, support_y: Tensor, *, num_steps: int = 5, **options: Any
) -> Iterator[Adapted]:
    """Iterate over theta_{i,0}, ..., theta_{i,S}; the arguments are as in `adapt`.

    Examples:
        >>> import torch
        >>> from alfa import MLP, SGD, LearnedInit, mse
        >>> from alfa.learner import steps
        >>> model = MLP((1,), 1, hidden=[40, 40])
        >>> init = LearnedInit(model)
        >>> x = torch.linspace(-1, 1, 10).reshape(1, 10, 1)
        >>> rule = SGD(init.layers)
        >>> [len(a.rates) for a in steps(model, x, x.sin(), init=init, rule=rule, loss=mse)]
        [0, 1, 2, 3, 4, 5]
    """
    inner_loop = _InnerLoop(model, support_x, support_y, **options)
    return map(inner_loop.adapted, inner_loop.positions(num_steps))


@dataclass(frozen=True)
class _Position:
    """The inner loop after some steps."""

    params: Params
    shared: dict[str, Tensor]
    losses: tuple[Tensor, ...] = ()
    rates: tuple[Rates, ...] = ()


@dataclass
class _InnerLoop:
    """The inner loop of a stack of tasks."""

    model: nn.Module
    support_x: Tensor
    support_y: Tensor
    init: Init
    rule: Rule
    loss: Loss
    order: Order = "second"
    over_tasks: OverTasks = "auto"
    batch_norm: BatchNorm = "transductive"
    memory: MemoryMode = "store"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_loss(self.loss)
        check_options(
            self.model,
            order=self.order,
            over_tasks=self.over_tasks,
            batch_norm=self.batch_norm,
            memory=self.memory,
            batch_size=self.batch_size,
        )
        _check_support(self.support_x, self.support_y)
        if self.rule.layers != self.init.layers:
            raise ConfigError(
                f"the rule was made for the layers {dict(self.rule.layers)}, but the init has "
                f"{dict(self.init.layers)}; make it with {type(self.rule).__name__}(init.layers)."
            )
        if not torch.is_grad_enabled():
            self.order = "none"
        if self.order == "none":
            # Without an outer gradient there is nothing to recompute.
            self.memory = "store"
        self.mode = ExecutionMode(self.over_tasks)
        loss = self.loss
        self.of_loss = dict(loss.named_parameters()) if isinstance(loss, nn.Module) else {}
        # Minibatches have other statistics of batch norm, and steps may have other parameters.
        is_fixed = self.batch_size is None and not self.init.has_step_parameters
        self.last_layer = last_layer_of(self.model, self.init.layers) if is_fixed else None
        self.features: Tensor | None = None

    def positions(self, num_steps: int) -> Iterator[_Position]:
        """Return an iterator over the positions after 0, ..., `num_steps` steps."""
        if num_steps < 0:
            raise ConfigError(f"`num_steps` must be at least 0, got {num_steps}.")
        return self._positions(num_steps)

    def _positions(self, num_steps: int) -> Iterator[_Position]:
        # The mode of autograd must not leak to the caller, so no context spans a `yield`.
        with self._grad_mode():
            position = self._start()
        yield position
        for step in range(num_steps):
            with self._grad_mode():
                position = self._step(step, position)
            yield position

    def adapted(self, position: _Position) -> Adapted:
        losses = position.losses
        return Adapted(
            params=position.params,
            shared=position.shared,
            support_losses=torch.stack(losses)
            if losses
            else position.params.flat.new_empty(0, len(self.support_x)),
            rates=position.rates,
            model=self.model,
            over_tasks=self.over_tasks,
            norm_support=self.support_x if self.batch_norm == "inductive" else None,
            memory=self.memory,
        )

    def _grad_mode(self) -> AbstractContextManager[Any]:
        return torch.set_grad_enabled(self.order != "none")

    def _start(self) -> _Position:
        shared = self._shared_at(0)

        def gradients(params: Params) -> Params:
            return self._losses_and_gradients(params, shared)[1]

        def embed(params: Params, head: str) -> Tensor:
            return self._embed(params, shared, head)

        support = Support(self.support_x, self.support_y, gradients, embed)
        return _Position(self.init.start(support), shared)

    def _embed(self, params: Params, shared: Mapping[str, Tensor], head: str) -> Tensor:
        """Return the inputs of the last layer; compute them once if all steps have the same."""
        if self.features is not None:
            return self.features

        def embedded(flat: Tensor) -> Tensor:
            at = params.like(flat)
            return embed_stacked(self.model, head, at, shared, self.support_x, self.mode)

        if self.memory == "store":
            found = embedded(params.flat)
        else:
            found = checkpoint(embedded, params.flat, use_reentrant=False)
        if self.last_layer is not None:
            self.features = found
        return found

    def _step(self, step: int, before: _Position) -> _Position:
        shared = before.shared
        if self.init.has_step_parameters and step > 0:
            shared = self._shared_at(step)
        examples = minibatch(step, self.support_x.shape[1], self.batch_size)
        losses, grads = self._losses_and_gradients(before.params, shared, examples)
        state: State = before.rates[-1].state if before.rates else ()
        rates: Rates = self.rule(step, before.params, grads, state, losses=losses)
        params = apply_rates(before.params, grads, rates)  # Eq. 4
        return _Position(params, shared, (*before.losses, losses), (*before.rates, rates))

    def _shared_at(self, step: int) -> dict[str, Tensor]:
        shared = self.init.shared_at(step)
        if self.order == "none":
            shared = {name: parameter.detach() for name, parameter in shared.items()}
        return shared

    def _losses_and_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        examples: Tensor | slice = slice(None),
    ) -> tuple[Tensor, Params]:
        model, x, memory = self.model, self.support_x, self.memory
        if self.last_layer is not None:
            model, memory = self.last_layer, "store"
            x = self._embed(params, shared, self.last_layer.name)
            x = x if self.order == "second" else x.detach()
            shared = {name: p for name, p in shared.items() if name in self.last_layer.names}

        def compute(tensors: Sequence[Tensor], *, graph: bool) -> tuple[Tensor, Tensor]:
            flat, x, y, *rest = tensors
            shared_at = dict(zip(shared, rest, strict=False))
            bound_loss = self.loss
            if self.of_loss:
                of_loss_at = dict(zip(self.of_loss, rest[len(shared) :], strict=True))
                bound_loss = _with_params(self.loss, of_loss_at)
            at = params.like(flat)
            return _compute(model, at, shared_at, x, y, bound_loss, self.mode, graph)

        stacked = params.flat, x[:, examples], self.support_y[:, examples]
        rest = *shared.values(), *self.of_loss.values()
        # If nothing before this step is trained, its gradients need no graph.
        graph = self.order == "second" and any(t.requires_grad for t in (*stacked, *rest))
        if graph and memory == "recompute":
            losses, grads = recomputed(compute, stacked, rest)
        else:
            losses, grads = compute((*stacked, *rest), graph=graph)
        return losses, params.like(grads)


def check_options(
    model: nn.Module,
    *,
    order: str,
    over_tasks: str,
    batch_norm: str,
    memory: str,
    batch_size: int | None,
) -> None:
    """Raise ConfigError unless `adapt` supports these options with the model."""
    check_choice("order", order, ("second", "first", "none"))
    check_choice("over_tasks", over_tasks, ("auto", "loop", "stack"))
    check_choice("memory", memory, ("store", "recompute"))
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"`batch_size` must be at least 1 or None, got {batch_size}.")
    check_batch_norm(model, batch_norm)


def check_batch_norm(model: nn.Module, batch_norm: str, *, name: str = "batch_norm") -> BatchNorm:
    """Return the choice; raise ConfigError if it is invalid, or the model does not support it."""
    check_choice(name, batch_norm, ("transductive", "inductive"))
    if batch_norm != "inductive":
        return "transductive"
    if not has_batch_norm(model):
        raise ConfigError(
            f"`{name}` is 'inductive', but {type(model).__name__} has no batch norm that uses the "
            "statistics of the batch; leave it out, or use another model."
        )
    return "inductive"


def _compute(
    model: nn.Module,
    params: Params,
    shared: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
    mode: ExecutionMode,
    graph: bool,
) -> tuple[Tensor, Tensor]:
    """Return each task's support loss, as a constant, and its gradient, ``[task, size]``."""
    if not (graph and params.flat.requires_grad):
        params = params.like(params.flat.detach().requires_grad_())
    if isinstance(model, Model) and not (x.requires_grad or y.requires_grad):
        with torch.set_grad_enabled(graph):
            fast = model.support_gradients(params, shared, x, y, loss, mode)
        if fast is not None:
            return fast[0], fast[1].flat
    # Torch's fused attention has no second derivative.
    attention = sdpa_kernel(SDPBackend.MATH) if graph else nullcontext()
    with torch.enable_grad(), attention:
        losses = check_losses(loss(run_stacked(model, params, shared, x, mode), y), len(x))
        grad: Tensor | None = None
        if losses.requires_grad:
            # The tasks are independent, so the sum has the gradients of all tasks.
            (grad,) = torch.autograd.grad(
                losses.sum(), params.flat, create_graph=graph, allow_unused=True
            )
    if grad is None:
        raise ConfigError(
            "the support loss does not depend on the adapted parameters "
            f"({', '.join(params)}); check `adapt` and the model's forward."
        )
    return losses.detach(), grad


def _with_params(loss: Any, params: dict[str, Tensor]) -> Loss:
    """Return a loss that is a module with other parameters."""

    def bound(outputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = functional_call(loss, params, (outputs, targets))
        return losses

    return bound


def _check_support(support_x: Tensor, support_y: Tensor) -> None:
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
