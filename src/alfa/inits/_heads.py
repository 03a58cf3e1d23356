"""Inits that create the last layer for each task, with any number of classes."""

import abc
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, did_you_mean
from alfa.inits._base import Support, register_init
from alfa.inits._inits import ModelInit, Patterns
from alfa.types import Layers, Params


class TaskHead(ModelInit):
    """A learned init that creates the last layer for each task.

    To add a head, subclass and implement `initial_head`; see `Init` for the rest.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, which must include the last layer;
            by default all parameters except normalization parameters.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.

    Raises:
        ConfigError: the layer does not exist, is not linear, or is not adapted.
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
                    f"`head` is {self.head!r}, but the model has no parameter {name}; name a "
                    f"linear layer with weight and bias.{did_you_mean(name, names)}"
                )
            if name not in self._layers:
                raise ConfigError(
                    f"`adapt` leaves out {name}, but every task creates the layer {self.head}; "
                    f"add '{self.head}.*' to `adapt`."
                )

    @abc.abstractmethod
    def initial_head(self, body: Params, support: Support, way: int) -> tuple[Tensor, Tensor]:
        """Return the last layer: weight ``[task, class, feature]`` and bias ``[task, class]``.

        Args:
            body: the other adapted layers.
            support: the support sets.
            way: number of classes of each task.
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
        # Not cached for each number of classes: `Layers` itself caches large tensors.
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

    Examples:
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
        c = prototypes(support.embed(body, self.head), support.y, way)
        return 2 * c, -c.square().sum(2)


@register_init("zero-head")
class ZeroHead(TaskHead):
    """MAML for any number of classes: the last layer starts at zero."""

    def initial_head(self, body: Params, support: Support, way: int) -> tuple[Tensor, Tensor]:
        last = self.model.get_parameter(self._weight)
        shape = support.num_tasks, way
        return last.new_zeros(*shape, last.shape[1]), last.new_zeros(shape)


def prototypes(embedded: Tensor, y: Tensor, way: int) -> Tensor:
    """Return the mean ``[task, class, feature]`` of each class of the examples.

    Raises ConfigError if a task has no example of one of `way` classes.
    """
    members = nn.functional.one_hot(y, way).to(embedded.dtype)
    counts = members.sum(1)
    if bool((counts == 0).any()):
        task, missing = (counts == 0).nonzero()[0].tolist()
        raise ConfigError(
            f"the support set of task {task} has no example of class {missing}, but a prototype "
            f"needs at least one; number the classes of a task from 0 to {way - 1}."
        )
    return members.mT @ embedded / counts.unsqueeze(2)


def _last_linear(model: nn.Module) -> str:
    if (name := getattr(model, "head_name", None)) is not None:
        return str(name)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ConfigError(
            f"{type(model).__name__} has no linear layer that every task could create; name a "
            "layer with `head`."
        )
    return str(linear[-1])


def _num_classes(y: Tensor) -> int:
    """Return the number of classes in each support set, which must be equal."""
    if y.dtype != torch.int64 or y.ndim != 2 or (y.numel() and int(y.min()) < 0):
        raise ConfigError(
            "a last layer for each task needs class labels, numbered from 0, as targets: "
            f"torch.int64 [task, example], got {y.dtype} {list(y.shape)}; convert other integers "
            "with `.long()`."
        )
    if not y.numel():
        raise ConfigError(
            "the support sets are empty, but a last layer for each task needs at least one "
            f"example of every class, got targets of shape {list(y.shape)}."
        )
    ways = (y.amax(dim=1) + 1).tolist()
    if min(ways) != max(ways):
        other = next(task for task, way in enumerate(ways) if way != ways[0])
        raise ConfigError(
            f"the first task of a stack has {ways[0]} classes, but task {other} has {ways[other]}, "
            "so their last layers cannot be stacked; group tasks by number of classes with "
            "`alfa.data.grouped`."
        )
    return int(ways[0])
