"""What a model of the package is, and how any module runs on a stack of tasks."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap

from alfa.errors import ConfigError
from alfa.models._call import call
from alfa.models._frozen import Bound
from alfa.ops import Loss
from alfa.registry import Registry
from alfa.types import Params

OverTasks = Literal["auto", "loop", "stack"]
"""Tasks one after the other, all at once, or whichever was measured to be faster."""

BatchNorm = Literal["transductive", "inductive"]
"""Whether queries are normalised by their own statistics or by those of the support set."""


@dataclass(frozen=True)
class How:
    """How a model meets a stack of tasks.

    Attributes:
        over_tasks: one after the other or all at once. A module that is not a `Model` is run
            under `torch.func.vmap` for the latter, which does not know every operation.
        own: how many examples batch norm takes its statistics of, from the first; None for all.
    """

    over_tasks: OverTasks = "auto"
    own: int | None = None


AS_USUAL = How()


class Model(nn.Module, abc.ABC):
    """A module that can run many tasks at once, each with weights of its own.

    To add one, subclass, implement `stacked`, and decorate the class with
    ``@register_model("my-model")``. Its constructor takes the shape of one input and the
    number of outputs, then keyword-only options; ``generator`` is filled in where it has it.
    Any other `nn.Module` can be adapted too; it then runs task by task.

    Attributes:
        has_batch_norm: whether what a model says of one example depends on the others; such a
            model heeds `How.own`.
        head_name: of the linear layer that is last, if there is one; its number of outputs may
            then be another than the model's own.
    """

    has_batch_norm: bool = False
    head_name: str | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_abstract = getattr(cls.stacked, "__isabstractmethod__", False)
        first = next(c for c in cls.__mro__ if {"forward", "stacked"} & vars(c).keys())
        if not is_abstract and "stacked" not in vars(first):
            # Adaptation would go on as if it were not there.
            raise ConfigError(
                f"{cls.__name__} overrides `forward`, but a model of alfa runs by `stacked`; "
                "override that one, or make it an nn.Module with the model inside."
            )

    @abc.abstractmethod
    def stacked(self, params: Mapping[str, Tensor], x: Tensor, how: How = AS_USUAL) -> Tensor:
        """Outputs ``[task, example, ...]`` for inputs ``[task, example, ...]``.

        Args:
            params: all parameters by name, ``[task, ...]`` each; `Params` where all are adapted.
            x: the inputs of every task.
            how: the model meets the tasks.
        """

    def embedded(self, params: Mapping[str, Tensor], x: Tensor, how: How = AS_USUAL) -> Tensor:
        """What the last layer is given, ``[task, example, feature]``; for a model that names it.

        Args:
            params: all parameters but the last layer's by name, ``[task, ...]`` each.
            x: the inputs of every task.
            how: the model meets the tasks.
        """
        raise ConfigError(
            f"{type(self).__name__} names {self.head_name!r} as its last layer, but does not say "
            "what that is given; implement `embedded`."
        )

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
        how: How = AS_USUAL,
    ) -> tuple[Tensor, Params] | None:
        """Each task's loss and its gradients by a faster way than autograd, if there is one.

        Args:
            params: the adapted parameters.
            shared: the others, without a task dimension.
            x: the inputs of every task, which need no gradient.
            targets: their targets.
            loss: the loss in use, which trains nothing itself.
            how: the model meets the tasks.

        Returns:
            Losses ``[task]``, as constants, and gradients in `params` that can be differentiated
            once more, in `params` and `shared`; None where there is no such way, as by default.
        """
        return None

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        """An ordinary module with one task's weights, that treats every example by itself.

        Args:
            params: all parameters by name, without a task dimension.
            x: the task's support set, ``[example, ...]``, by which batch norm normalises.
        """
        if self.has_batch_norm:
            raise ConfigError(
                f"{type(self).__name__} has batch norm, but does not say how it is given fixed "
                "statistics; implement `frozen`."
            )
        return Bound(self, params)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs ``[example, ...]`` with the module's own weights."""
        params = {name: parameter.unsqueeze(0) for name, parameter in self.named_parameters()}
        return self.stacked(params, x.unsqueeze(0)).squeeze(0)


MODELS: Registry[Model] = Registry("model")
register_model = MODELS.register


def run_stacked(
    model: nn.Module,
    params: Params,
    shared: Mapping[str, Tensor],
    x: Tensor,
    how: How = AS_USUAL,
) -> Tensor:
    """Run a model on a stack of tasks, each with its own parameters.

    Args:
        model: a `Model`, or any module.
        params: adapted parameters, ``[task, ...]``.
        shared: the other parameters, without a task dimension.
        x: inputs, ``[task, example, ...]``.
        how: the model meets the tasks.

    Returns:
        ``[task, example, ...]``. Running statistics of normalisation layers are used in
        evaluation mode and never changed.
    """
    num_tasks = x.shape[0]
    if isinstance(model, Model):
        return model.stacked(_with_shared(params, shared), x, how)
    buffers = dict(model.named_buffers())
    if how.over_tasks == "stack":
        # Statistics that are updated in place need a copy for each task.
        copies = {name: torch.stack([b] * num_tasks) for name, b in buffers.items()}

        def run(own: dict[str, Tensor], copy: dict[str, Tensor], x: Tensor) -> Tensor:
            return call(model, {**shared, **own, **copy}, x)

        return vmap(run, randomness="different")(dict(params), copies, x)
    unbound = {name: p.unbind(0) for name, p in params.items()}
    outputs = []
    for task, inputs in enumerate(x.unbind(0)):
        own = {name: tensors[task] for name, tensors in unbound.items()}
        copies = {name: b.clone() for name, b in buffers.items()}
        outputs.append(call(model, {**shared, **own, **copies}, inputs))
    if not all(isinstance(output, Tensor) for output in outputs):
        raise ConfigError(
            f"{type(model).__name__} returned {type(outputs[0]).__name__}, but a model that is "
            "adapted must return one tensor; wrap it in a module that does."
        )
    return torch.stack(outputs)


def embed_stacked(
    model: nn.Module,
    head: str,
    params: Params,
    shared: Mapping[str, Tensor],
    x: Tensor,
    how: How = AS_USUAL,
) -> Tensor:
    """What a layer of a model is given, each task with its own parameters.

    Args:
        model: a `Model`, or any module.
        head: the name of the layer.
        params: adapted parameters, ``[task, ...]``; those of the layer and after are not needed.
        shared: the other parameters, without a task dimension.
        x: inputs, ``[task, example, ...]``.
        how: the model meets the tasks.

    Returns:
        ``[task, example, feature]``

    Raises:
        ConfigError: the layer is never reached, or not given one vector for each example.
    """
    if isinstance(model, Model):
        if head != model.head_name:
            raise ConfigError(
                f"the last layer of {type(model).__name__} is {model.head_name!r}, not {head!r}."
            )
        return model.embedded(_with_shared(params, shared), x, how)
    found: list[Tensor] = []

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(inputs[0])

    handle = model.get_submodule(head).register_forward_pre_hook(look)
    try:
        for task, inputs in enumerate(x.unbind(0)):
            own = {name: tensor[task] for name, tensor in params.items()}
            copies = {name: b.clone() for name, b in model.named_buffers()}
            call(model, {**shared, **own, **copies}, inputs)
    finally:
        handle.remove()
    if len(found) != len(x) or any(e.shape[:-1] != x.shape[1:2] for e in found):
        shapes = [list(e.shape) for e in found]
        raise ConfigError(
            f"the layer {head} must be given one vector for each of {x.shape[1]} examples, once, "
            f"but was given {shapes}; name another one with `head`."
        )
    return torch.stack(found)


def _with_shared(params: Params, shared: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """All parameters, those that tasks share once for each."""
    if not shared:
        return params
    num_tasks = params.num_tasks
    return {**params, **{name: p.expand(num_tasks, *p.shape) for name, p in shared.items()}}
