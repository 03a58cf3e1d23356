"""Inits that create the last layer for each task, with any number of classes."""

from __future__ import annotations

import abc
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, did_you_mean
from alfa.inits._base import ModelInit, Patterns, Support, register_init
from alfa.types import Layers, Params


class TaskHead(ModelInit):
    """A learned initialization, except that every task creates its own last layer.

    To add one, subclass and implement `initial_head`; see `Init` for the rest.

    Args:
        model: holds theta.
        adapt: patterns of the names of the adapted parameters, including those of the last layer;
            by default all but those of normalization layers.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.

    Raises:
        ConfigError: if there is no such layer, or it is not adapted.
    """

    classification_only = True
    variable_way = True

    def __init__(
        self, model: nn.Module, *, adapt: Patterns | None = None, head: str | None = None
    ) -> None:
        super().__init__(model, adapt=adapt)
        self.head = _last_linear(model) if head is None else head
        self._weight, self._bias = self._head_names = f"{self.head}.weight", f"{self.head}.bias"
        names = [name for name, _ in model.named_parameters()]
        for name in self._head_names:
            if name not in names:
                raise ConfigError(
                    f"`head` is {self.head!r}, but the model has no parameter {name}; it must name "
                    f"a linear layer with weight and bias.{did_you_mean(name, names)}"
                )
            if name not in self._layers:
                raise ConfigError(
                    f"`adapt` leaves out {name}, but every task creates the layer {self.head}; "
                    f"add '{self.head}.*' to `adapt`."
                )

    @abc.abstractmethod
    def initial_head(self, body: Params, support: Support, way: int) -> tuple[Tensor, Tensor]:
        """Weight ``[task, class, feature]`` and bias ``[task, class]`` of the last layer.

        Args:
            body: the other adapted layers.
            support: the tasks' support sets.
            way: classes of each task.
        """

    def start(self, support: Support) -> Params:
        way = _num_classes(support.y)
        theta = super().start(support)
        names = [name for name in self._layers if name not in self._head_names]
        body = Params(theta.flat[:, :0], Layers({}))
        if names:
            body = Params.of({name: theta[name] for name in names})
        head = dict(zip(self._head_names, self.initial_head(body, support, way), strict=True))
        rows = [head.get(name, theta[name]).reshape(len(theta.flat), -1) for name in self._layers]
        return Params(torch.cat(rows, dim=1), self._layers_for(way))

    def _layers_for(self, way: int) -> Layers:
        if way == self._layers[self._bias][0]:
            return self._layers
        # Not cached: `Layers` caches too much of a large model for every number of classes.
        head = {self._weight: (way, *self._layers[self._weight][1:]), self._bias: (way,)}
        return Layers({n: torch.Size(head.get(n, shape)) for n, shape in self._layers.items()})

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        named = self.model.named_parameters()
        return (parameter for name, parameter in named if name not in self._head_names)


@register_init("prototype-head")
class PrototypeHead(TaskHead):
    """Proto-MAML: the last layer starts as a prototypical network (Triantafillou et al., 2020).

    With c_k the mean of the embedded support examples of class k, W_k = 2 c_k and
    b_k = -|c_k|^2: the logits are the negative squared distances to the prototypes, up to a
    constant for each query. The outer gradient flows through the prototypes. The number of
    classes may differ from task to task.

    Example:
        >>> import torch
        >>> from alfa import Conv4, PrototypeHead, SGD, adapt, cross_entropy
        >>> model = Conv4((3, 16, 16), 5)
        >>> init = PrototypeHead(model)
        >>> x, y = torch.randn(1, 14, 3, 16, 16), torch.arange(7).repeat(2)[None]  # 7 classes
        >>> adapted = adapt(model, x, y, init=init, rule=SGD(init.layers), loss=cross_entropy)
        >>> adapted.predict(x).shape
        torch.Size([1, 14, 7])
    """

    def initial_head(self, body: Params, support: Support, way: int) -> tuple[Tensor, Tensor]:
        embedded = support.embed(body, self.head)
        c = prototypes(embedded, support.y, way)
        return 2 * c, -c.square().sum(2)


@register_init("zero-head")
class ZeroHead(TaskHead):
    """The last layer starts at zero: MAML on tasks with any number of classes.

    Example:
        >>> from alfa import Conv4
        >>> from alfa.inits import ZeroHead
        >>> init = ZeroHead(Conv4((3, 16, 16), 5))
        >>> len(init.layers), len(list(init.meta_parameters()))  # all but the last layer's two
        (10, 16)
    """

    def initial_head(self, body: Params, support: Support, way: int) -> tuple[Tensor, Tensor]:
        num_features = self._layers[self._weight][1]
        like = self.model.get_parameter(self._weight)
        num_tasks = support.num_tasks
        return like.new_zeros(num_tasks, way, num_features), like.new_zeros(num_tasks, way)


def prototypes(embedded: Tensor, y: Tensor, way: int) -> Tensor:
    """The mean of the examples of every class, ``[task, class, feature]``.

    Args:
        embedded: ``[task, example, feature]``.
        y: the class of each example, ``[task, example]``.
        way: classes of a task.

    Raises:
        ConfigError: if a task has no example of a class.
    """
    members = nn.functional.one_hot(y, way).to(embedded.dtype)
    counts = members.sum(1)
    if bool((counts == 0).any()):
        task, missing = (int(number) for number in (counts == 0).nonzero()[0])
        raise ConfigError(
            f"the support set of task {task} has no example of class {missing}, but a prototype "
            f"needs at least one; the classes of a task are numbered from 0 to {way - 1}."
        )
    return members.mT @ embedded / counts.unsqueeze(2)


def _last_linear(model: nn.Module) -> str:
    """The `head_name` of a model, or else the name of its last linear layer."""
    named = getattr(model, "head_name", None)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if named is None and not linear:
        raise ConfigError(
            f"{type(model).__name__} has no linear layer that every task could create; name one "
            "with `head`."
        )
    return str(linear[-1] if named is None else named)


def _num_classes(y: Tensor) -> int:
    """The number of classes in each support set, which must be the same."""
    no_labels = y.is_floating_point() or y.is_complex() or y.ndim != 2
    if no_labels or (y.numel() and int(y.min()) < 0):
        raise ConfigError(
            "a last layer for each task needs class labels, numbered from 0, as targets "
            f"[task, example], but they are {y.dtype} {list(y.shape)}; use it for classification."
        )
    if not y.numel():
        raise ConfigError(
            f"the support sets are empty, with targets of shape {list(y.shape)}, but a last layer "
            "for each task needs at least one example of every class."
        )
    if y.dtype != torch.int64:
        # Torch's losses do not support other types either.
        raise ConfigError(
            f"the targets are {y.dtype}, but class labels must be torch.int64; convert those of "
            "support and query sets with `.long()`."
        )
    ways = (y.amax(dim=1) + 1).tolist()
    if min(ways) != max(ways):
        other = next(task for task, way in enumerate(ways) if way != ways[0])
        raise ConfigError(
            f"the first task of a stack has {ways[0]} classes, but task {other} has {ways[other]}, "
            "and their last layers cannot be stacked; adapt to tasks of one size at a time, as "
            "grouped by `alfa.data.grouped`."
        )
    return int(ways[0])
