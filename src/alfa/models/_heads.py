"""Heads: last layers of any kind, whose weights a support set determines."""

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.models._base import DEFAULT_MODE, ExecutionMode, Model, has_batch_norm, run_each
from alfa.models._call import call, observe_inputs
from alfa.models._frozen import frozen_module, uses_batch_statistics
from alfa.models._norm import normalize_like
from alfa.registry import Registry


class Head(nn.Module, abc.ABC):
    """Maps features to outputs, with weights that the support set of a task determines.

    `Headed` puts a head in the place of a model's last layer, and the init `TaskHead` calls `fit`.
    To add a head, subclass, implement `fit` and `forward`, and decorate the class with
    ``@register_head("my-head")``. The constructor takes the shape of the features of one example
    and the number of outputs, then keyword-only options; alfa supplies ``generator`` if the
    constructor takes it. All parameters except `task_parameters` are meta-learned.

    Batch norm that uses the statistics of the batch (`track_running_stats=False`) works as in a
    backbone: transductive, or inductive with the statistics of the support set.

    Attributes:
        task_parameters: names of the parameters that `fit` computes for each task. Their shapes may
            differ from task to task.
        is_transductive: the outputs of a query depend on the other queries, except through batch
            norm.
        variable_way: tasks may have any number of classes, instead of at most the number of
            outputs.

    Examples:
        >>> from torch import nn
        >>> from alfa.inits import prototypes
        >>> class Distances(Head):
        ...     task_parameters = ("centers",)
        ...
        ...     def __init__(self, feature_shape, num_outputs):
        ...         super().__init__()
        ...         self.centers = nn.Parameter(torch.zeros(num_outputs, *feature_shape).flatten(1))
        ...
        ...     def fit(self, z, y, way):
        ...         return {"centers": prototypes(z, y, way)}
        ...
        ...     def forward(self, z):
        ...         return -torch.cdist(z, self.centers)
        >>> Distances((8, 2, 2), 5)(torch.zeros(7, 32)).shape
        torch.Size([7, 5])
    """

    task_parameters: tuple[str, ...]
    is_transductive: bool = False
    variable_way: bool = True

    @abc.abstractmethod
    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        """Return the task parameters of every task by name, ``[task, ...]``.

        Args:
            z: features of the support sets, ``[task, support, feature]``; maps are flattened.
            y: class labels of the support sets, ``[task, support]``.
            way: number of classes of each task.
        """

    @abc.abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """Return outputs ``[example, class]`` of one task for features ``[example, feature]``.

        Alfa has replaced all parameters of the module by those of the task.
        """


HEADS: Registry[Head] = Registry("head", context=("generator",))
register_head = HEADS.register


class Headed(Model):
    """A backbone with another head in the place of its last layer.

    Args:
        backbone: a model of alfa, or any module whose last linear layer receives the features. It
            loses this layer.
        head: the new head.

    Attributes:
        former_head: the name of the layer that the backbone has lost; None if it has no name.

    Examples:
        >>> from torch import nn
        >>> from alfa import Conv4
        >>> from alfa.models import Head, Headed
        >>> class Cosine(Head):
        ...     task_parameters = ("weight",)
        ...
        ...     def __init__(self, feature_shape, num_outputs):
        ...         super().__init__()
        ...         self.weight = nn.Parameter(torch.zeros(num_outputs, *feature_shape).flatten(1))
        ...
        ...     def fit(self, z, y, way):
        ...         members = nn.functional.one_hot(y, way).to(z.dtype)
        ...         return {"weight": members.mT @ nn.functional.normalize(z, dim=-1)}
        ...
        ...     def forward(self, z):
        ...         return nn.functional.normalize(z, dim=-1) @ self.weight.mT
        >>> backbone = Conv4((1, 16, 16), 5, filters=8)
        >>> Headed(backbone, Cosine(backbone.feature_shape, 5))(torch.zeros(7, 1, 16, 16)).shape
        torch.Size([7, 5])
    """

    head_name = "head"

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.feature_shape = feature_shape(backbone)
        self.head_norms = [part for part in head.modules() if uses_batch_statistics(part)]
        self.has_batch_norm = has_batch_norm(backbone) or bool(self.head_norms)
        self.former_head: str | None
        if isinstance(backbone, Model):
            self.former_head = backbone.head_name
            backbone.remove_head()
        else:
            self.former_head = last_layer(backbone)
            backbone.set_submodule(self.former_head, nn.Identity())
        self.backbone, self.head = backbone, head

    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        z = self.embedded(params, x, mode)
        own = _with_prefix("head.", params)
        outputs = []
        for task in range(len(z)):
            tensors = {name: tensor[task] for name, tensor in own.items()}
            tensors |= {name: buffer.clone() for name, buffer in self.head.named_buffers()}
            outputs.append(self._head_outputs(tensors, z[task], mode.num_norm_examples))
        return torch.stack(outputs)

    def _head_outputs(
        self, tensors: Mapping[str, Tensor], z: Tensor, num_support: int | None
    ) -> Tensor:
        """Return one task's outputs ``[example, class]``.

        The leading `num_support` examples are the support set, whose statistics normalize the
        others. A transductive head must not see them as queries.
        """
        if not num_support:
            return call(self.head, tensors, z)
        found: dict[nn.Module, list[Tensor]] = {norm: [] for norm in self.head_norms}
        with observe_inputs(self.head_norms, lambda norm, inputs: found[norm].append(inputs)):
            support = call(self.head, tensors, z[:num_support])
        queries = z[num_support:]
        # torch's batch norm refuses a single example, even if the hook replaces its statistics.
        padded = torch.cat([queries, queries]) if len(queries) == 1 else queries
        with _normalized_like(found):
            outputs = call(self.head, tensors, padded)[: len(queries)]
        return torch.cat([support, outputs])

    def embedded(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        own = _with_prefix("backbone.", params)
        if isinstance(self.backbone, Model):
            return self.backbone.stacked(own, x, mode).flatten(2)
        return torch.stack(run_each(self.backbone, own, {}, x, mode)).flatten(2)

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        check_inductive_head(self)
        own = _with_prefix("backbone.", params)
        if isinstance(self.backbone, Model):
            body = self.backbone.frozen(own, x)
        else:
            body = frozen_module(self.backbone, own, x)
        body = nn.Sequential(body, nn.Flatten())
        with torch.no_grad():
            z = body(x)
        return nn.Sequential(body, frozen_module(self.head, _with_prefix("head.", params), z))


def last_layer(model: nn.Module) -> str:
    """Return the name of a model's last layer: its `head_name`, or else the last linear layer."""
    if (name := getattr(model, "head_name", None)) is not None:
        return str(name)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ConfigError(
            f"{type(model).__name__} has no linear layer that every task could create; name a "
            "layer with `head`."
        )
    return str(linear[-1])


def feature_shape(model: nn.Module) -> tuple[int, ...]:
    """Return the shape of the features of one example, the inputs of a model's last layer."""
    if (shape := getattr(model, "feature_shape", None)) is not None:
        return tuple(shape)
    layer = model.get_submodule(last_layer(model))
    if not isinstance(layer, nn.Linear):
        raise ConfigError(
            f"the last layer of {type(model).__name__}, {last_layer(model)}, is a "
            f"{type(layer).__name__}, so its number of features is unknown; set the model's "
            "attribute `feature_shape`."
        )
    return (layer.in_features,)


def check_inductive_head(model: nn.Module) -> None:
    """Raise ConfigError if the head of a model classifies the queries of a task together."""
    if isinstance(model, Headed) and model.head.is_transductive:
        raise ConfigError(
            f"{type(model.head).__name__} classifies the queries of a task together, so it cannot "
            "classify images independently; use `evaluate`, or train a method with another head."
        )


def body_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model's backbone: all except for its last layer."""
    if isinstance(model, Headed):
        return dict(model.backbone.named_parameters())
    head = f"{last_layer(model)}."
    return {name: p for name, p in model.named_parameters() if not name.startswith(head)}


@contextlib.contextmanager
def _normalized_like(inputs: Mapping[nn.Module, Sequence[Tensor]]) -> Iterator[None]:
    """Within this context, batch norms use the statistics of the inputs of their earlier calls."""

    def fixed(left: Iterator[Tensor]) -> Callable[..., Tensor]:
        def hook(norm: Any, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
            return normalize_like(norm, given[0], next(left))

        return hook

    with contextlib.ExitStack() as handles:
        for norm, earlier in inputs.items():
            handles.enter_context(norm.register_forward_hook(fixed(iter(earlier))))
        yield


def _with_prefix(prefix: str, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names: Sequence[str] = [name for name in params if name.startswith(prefix)]
    return {name.removeprefix(prefix): params[name] for name in names}
