"""The base class of the models, and how any module runs on a stack of tasks."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap

from alfa.errors import ConfigError
from alfa.models._call import call, observe_inputs
from alfa.models._frozen import Bound
from alfa.ops import Loss
from alfa.registry import Registry
from alfa.types import Params

OverTasks = Literal["auto", "loop", "stack"]
"""Tasks one after the other, all at once, or whichever was measured to be faster."""

BatchNorm = Literal["transductive", "inductive"]
"""Whether queries are normalized by their own statistics or by those of the support set."""


@dataclass(frozen=True)
class ExecutionMode:
    """How a model processes a stack of tasks.

    Attributes:
        over_tasks: one after the other or all at once. A module that is not a `Model` then runs
            under `torch.func.vmap`, which does not support every operation.
        num_norm_examples: number of leading examples used for batch-norm statistics; None for all.
    """

    over_tasks: OverTasks = "auto"
    num_norm_examples: int | None = None


DEFAULT_MODE = ExecutionMode()


class Model(nn.Module, abc.ABC):
    """A module that can run many tasks at once, each with its own weights.

    To add one, subclass, implement `stacked`, and decorate the class with
    ``@register_model("my-model")``. Its constructor takes the shape of one input and the
    number of outputs, then keyword-only options; ``generator`` is filled in if it is one of them.
    Any other `nn.Module` can be adapted, too; it then runs task by task.

    Attributes:
        has_batch_norm: whether the outputs of one example depend on the others; such a model
            supports `ExecutionMode.num_norm_examples`.
        head_name: name of the last layer if it is linear; tasks may give it another number of
            outputs.
    """

    has_batch_norm: bool = False
    head_name: str | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_abstract = getattr(cls.stacked, "__isabstractmethod__", False)
        first = next(c for c in cls.__mro__ if {"forward", "stacked"} & vars(c).keys())
        if not is_abstract and "stacked" not in vars(first):
            # Adaptation would ignore it.
            raise ConfigError(
                f"{cls.__name__} overrides `forward`, but alfa calls `stacked`; override "
                "`stacked`, or make it an nn.Module that contains the model."
            )

    @abc.abstractmethod
    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        """Outputs ``[task, example, ...]`` for inputs ``[task, example, ...]``.

        Args:
            params: all parameters by name, ``[task, ...]`` each; `Params` where all are adapted.
            x: the inputs of every task.
            mode: how to process the tasks.
        """

    def embedded(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        """The inputs of the last layer, ``[task, example, feature]``; needs `head_name`.

        Args:
            params: all parameters but the last layer's by name, ``[task, ...]`` each.
            x: the inputs of every task.
            mode: how to process the tasks.
        """
        raise ConfigError(
            f"the head_name of {type(self).__name__} is {self.head_name!r}, but it does not "
            "implement `embedded`."
        )

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
        mode: ExecutionMode = DEFAULT_MODE,
    ) -> tuple[Tensor, Params] | None:
        """Each task's loss and its gradients, if the model can compute them faster than autograd.

        Args:
            params: the adapted parameters.
            shared: the others, without a task dimension.
            x: the inputs of every task, which need no gradient.
            targets: their targets.
            loss: the loss in use, which has no trained parameters.
            mode: how to process the tasks.

        Returns:
            Losses ``[task]``, as constants, and gradients in `params` that can be differentiated
            once more, in `params` and `shared`. None, the default, means to use autograd.
        """
        return None

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        """An ordinary module with one task's weights, which classifies each example independently.

        Args:
            params: all parameters by name, without a task dimension.
            x: the task's support set, ``[example, ...]``, for the statistics of batch norm.
        """
        if self.has_batch_norm:
            raise ConfigError(
                f"{type(self).__name__} has batch norm, but does not implement `frozen`, which "
                "fixes its statistics."
            )
        return Bound(self, params)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs ``[example, ...]`` with the module's own weights."""
        params = {name: parameter.unsqueeze(0) for name, parameter in self.named_parameters()}
        return self.stacked(params, x.unsqueeze(0)).squeeze(0)


MODELS: Registry[Model] = Registry("model", context=("generator",))
register_model = MODELS.register


def run_stacked(
    model: nn.Module,
    params: Params,
    shared: Mapping[str, Tensor],
    x: Tensor,
    mode: ExecutionMode = DEFAULT_MODE,
) -> Tensor:
    """Run a model on a stack of tasks, each with its own parameters.

    Args:
        model: a `Model`, or any module.
        params: adapted parameters, ``[task, ...]``.
        shared: the other parameters, without a task dimension.
        x: inputs, ``[task, example, ...]``.
        mode: how to process the tasks.

    Returns:
        ``[task, example, ...]``. Running statistics of normalization layers are used in
        evaluation mode and never changed.
    """
    if isinstance(model, Model):
        return model.stacked(_with_shared(params, shared), x, mode)
    if mode.over_tasks == "stack":
        # Statistics that are updated in place need a copy for each task.
        copies = {name: torch.stack([b] * len(x)) for name, b in model.named_buffers()}

        def run(params: dict[str, Tensor], copies: dict[str, Tensor], x: Tensor) -> Tensor:
            return call(model, {**shared, **params, **copies}, x)

        return vmap(run, randomness="different")(dict(params), copies, x)
    outputs = _run_each(model, params, shared, x)
    if not all(isinstance(output, Tensor) for output in outputs):
        raise ConfigError(
            f"{type(model).__name__} returned {type(outputs[0]).__name__}, but an adapted model "
            "must return one tensor; wrap it in a module that does."
        )
    return torch.stack(outputs)


def _run_each(
    model: nn.Module, params: Params, shared: Mapping[str, Tensor], x: Tensor
) -> list[Tensor]:
    """The outputs of any module, task by task."""
    unbound = {name: p.unbind(0) for name, p in params.items()}
    outputs = []
    for task, inputs in enumerate(x.unbind(0)):
        task_params = {name: tensors[task] for name, tensors in unbound.items()}
        copies = {name: b.clone() for name, b in model.named_buffers()}
        outputs.append(call(model, {**shared, **task_params, **copies}, inputs))
    return outputs


def embed_stacked(
    model: nn.Module,
    head: str,
    params: Params,
    shared: Mapping[str, Tensor],
    x: Tensor,
    mode: ExecutionMode = DEFAULT_MODE,
) -> Tensor:
    """The inputs of a layer of a model, each task with its own parameters.

    Args:
        model: a `Model`, or any module.
        head: the name of the layer.
        params: adapted parameters, ``[task, ...]``; not needed for the layer and those after it.
        shared: the other parameters, without a task dimension.
        x: inputs, ``[task, example, ...]``.
        mode: how to process the tasks.

    Returns:
        ``[task, example, feature]``

    Raises:
        ConfigError: if the layer does not run once, with one vector for each example.
    """
    if isinstance(model, Model):
        if head != model.head_name:
            raise ConfigError(
                f"the last layer of {type(model).__name__} is {model.head_name!r}, not {head!r}."
            )
        return model.embedded(_with_shared(params, shared), x, mode)
    found: list[Tensor] = []
    with observe_inputs([model.get_submodule(head)], lambda _, inputs: found.append(inputs)):
        _run_each(model, params, shared, x)
    if len(found) != len(x) or any(e.shape[:-1] != x.shape[1:2] for e in found):
        shapes = [list(e.shape) for e in found]
        raise ConfigError(
            f"the layer {head} must get one vector for each of {x.shape[1]} examples, once, "
            f"but got {shapes}; name another one with `head`."
        )
    return torch.stack(found)


def _with_shared(params: Params, shared: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """All parameters, the shared ones expanded to all tasks."""
    if not shared:
        return params
    num_tasks = params.num_tasks
    return {**params, **{name: p.expand(num_tasks, *p.shape) for name, p in shared.items()}}
