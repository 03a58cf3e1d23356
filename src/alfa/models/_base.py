"""The base class of the models, and functions that run any module on a stack of tasks."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap

from alfa.errors import ConfigError
from alfa.models._call import call, observe_inputs
from alfa.models._frozen import Bound, uses_batch_statistics
from alfa.models._norm import leading_statistics
from alfa.ops import Loss
from alfa.registry import Registry
from alfa.types import Params

OverTasks = Literal["auto", "loop", "stack"]
"""Run tasks sequentially (``loop``), together (``stack``), or in the faster way (``auto``)."""

BatchNorm = Literal["transductive", "inductive"]
"""Normalize queries by their own statistics or by the support set's."""


@dataclass(frozen=True)
class ExecutionMode:
    """How a model processes a stack of tasks.

    Attributes:
        over_tasks: run tasks sequentially or together. With ``"stack"``, a module that is not a
            `Model` runs under `torch.func.vmap`, which does not support every operation.
        num_norm_examples: number of leading examples used for batch-norm statistics; None for all.
    """

    over_tasks: OverTasks = "auto"
    num_norm_examples: int | None = None


DEFAULT_MODE = ExecutionMode()


class Model(nn.Module, abc.ABC):
    """A module that can run many tasks at once, each with its own weights.

    To add a model, subclass, implement `stacked`, and decorate the class with
    ``@register_model("my-model")``. The constructor takes the shape of one input and the number of
    outputs, then keyword-only options; alfa supplies ``generator`` if the constructor takes it.
    Alfa can adapt any other `nn.Module`, too, task by task.

    Attributes:
        has_batch_norm: the outputs of an example depend on the other examples; the model supports
            `ExecutionMode.num_norm_examples`.
        head_name: name of the last layer; its number of outputs may differ from task to task.
        feature_shape: the shape of the input of the last layer for one example.
    """

    has_batch_norm: bool = False
    head_name: str | None = None
    feature_shape: tuple[int, ...] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_abstract = getattr(cls.stacked, "__isabstractmethod__", False)
        first = next(c for c in cls.__mro__ if {"forward", "stacked"} & vars(c).keys())
        if not is_abstract and "stacked" not in vars(first):
            raise ConfigError(
                f"{cls.__name__} overrides `forward`, but alfa calls `stacked`; override "
                "`stacked`, or make it an nn.Module that contains the model."
            )

    @abc.abstractmethod
    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        """Return outputs ``[task, example, ...]`` for inputs ``[task, example, ...]``.

        Args:
            params: all parameters by name, ``[task, ...]`` each; a `Params` if all are adapted.
            x: the inputs of every task.
            mode: how to process the tasks.
        """

    def embedded(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        """Return the inputs of the layer `head_name`, ``[task, example, feature]``.

        The arguments are as in `stacked`, but `params` may lack the last layer.
        """
        raise ConfigError(
            f"the head_name of {type(self).__name__} is {self.head_name!r}, but it does not "
            "implement `embedded`."
        )

    def classify(self, params: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return the outputs for the inputs of the layer `head_name`, `embedded`.

        If a model implements it, and tasks adapt this layer alone, the others run only once.

        Args:
            params: the parameters of the last layer by name, ``[task, ...]`` each.
            z: the inputs of the last layer, ``[task, example, feature]``.
        """
        raise ConfigError(f"{type(self).__name__} does not implement `classify`.")

    def remove_head(self) -> None:
        """Remove the last layer, so that the outputs are its former inputs."""
        raise ConfigError(
            f"{type(self).__name__} does not implement `remove_head`, so it cannot have another "
            "head; use one of alfa's backbones, or a module whose last layer is linear."
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
        """Compute each task's loss and its gradients in `params` faster than autograd.

        The arguments are as in `run_stacked`; `loss` has no trained parameters. Returns the losses
        ``[task]``, as constants, and gradients that are differentiable in `params` and `shared`.
        None, the default, means that autograd must compute them.
        """
        return None

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        """Return an ordinary module with one task's weights that classifies examples independently.

        Args:
            params: all parameters by name, without a task dimension.
            x: the task's support set, ``[example, ...]``, for the batch-norm statistics.
        """
        if self.has_batch_norm:
            raise ConfigError(
                f"{type(self).__name__} has batch norm, but does not implement `frozen`, which "
                "fixes its statistics."
            )
        return Bound(self, params)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs ``[example, ...]`` of the module's own weights."""
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
    """Run any module on inputs ``[task, example, ...]``, each task with its own parameters.

    `params` are the adapted parameters, and `shared` the others, without a task dimension. Torch's
    batch norm uses the statistics of the leading `mode.num_norm_examples` examples, if set, like a
    `Model`'s; in evaluation mode, it uses its running statistics, which never change.
    """
    if isinstance(model, Model):
        return model.stacked(with_shared(params, shared), x, mode)
    if mode.over_tasks == "stack":
        # Every task needs a copy of the statistics, which are updated in place.
        copies = {name: torch.stack([b] * len(x)) for name, b in model.named_buffers()}

        def run(params: dict[str, Tensor], copies: dict[str, Tensor], x: Tensor) -> Tensor:
            return call(model, {**shared, **params, **copies}, x)

        with leading_statistics(model, mode.num_norm_examples, x.shape[1]):
            return vmap(run, randomness="different")(dict(params), copies, x)
    outputs = run_each(model, params, shared, x, mode)
    if not all(isinstance(output, Tensor) for output in outputs):
        raise ConfigError(
            f"{type(model).__name__} returned {type(outputs[0]).__name__}, but an adapted model "
            "must return one tensor; wrap it in a module that does."
        )
    return torch.stack(outputs)


def run_each(
    model: nn.Module,
    params: Mapping[str, Tensor],
    shared: Mapping[str, Tensor],
    x: Tensor,
    mode: ExecutionMode = DEFAULT_MODE,
) -> list[Tensor]:
    """Run any module on the inputs of one task after the other; see `run_stacked`."""
    unbound = {name: p.unbind(0) for name, p in params.items()}
    outputs = []
    with leading_statistics(model, mode.num_norm_examples, x.shape[1]):
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
    """Return the inputs ``[task, example, feature]`` of the layer `head` of any module.

    The other arguments are as in `run_stacked`; `params` may lack `head` and later layers. Raises
    ConfigError unless the layer runs once, with one vector for each example.
    """
    if isinstance(model, Model):
        if head != model.head_name:
            raise ConfigError(
                f"the last layer of {type(model).__name__} is {model.head_name!r}, not {head!r}."
            )
        return model.embedded(with_shared(params, shared), x, mode)
    found: list[Tensor] = []
    with observe_inputs([model.get_submodule(head)], lambda _, inputs: found.append(inputs)):
        run_each(model, params, shared, x, mode)
    if len(found) != len(x) or any(e.shape[:-1] != x.shape[1:2] for e in found):
        shapes = [list(e.shape) for e in found]
        raise ConfigError(
            f"the layer {head} must get one vector for each of {x.shape[1]} examples, once, "
            f"got {shapes}; name another layer with `head`."
        )
    return torch.stack(found)


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether the outputs for one example depend on the others through batch norm."""
    if isinstance(model, Model):
        return model.has_batch_norm
    return any(map(uses_batch_statistics, model.modules()))


def linear_outputs(name: str | None, params: Mapping[str, Tensor], z: Tensor) -> Tensor:
    """Return the outputs of a linear layer by its name, ``[task, example, output]``."""
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    return torch.baddbmm(bias.unsqueeze(1), z, weight.mT)


def with_shared(params: Params, shared: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return all parameters, with the shared ones expanded to all tasks."""
    if not shared:
        return params
    num_tasks = params.num_tasks
    return {**params, **{name: p.expand(num_tasks, *p.shape) for name, p in shared.items()}}
