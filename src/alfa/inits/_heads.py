"""Inits that create the last layer for each task, with any number of classes."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, did_you_mean
from alfa.inits._base import Support, register_init
from alfa.inits._inits import ModelInit, Patterns
from alfa.models import Head, last_layer
from alfa.types import Layers, Params


@register_init("task-head")
class TaskHead(ModelInit):
    """A learned init that computes the last layer of each task from its support set.

    The body starts at theta, and the model's head, an `alfa.models.Head`, computes its own weights.
    To compute those of a linear layer instead, subclass and implement `initial_head`; see `Init`
    for the rest. Parameters of the subclass are meta-learned.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, which must include the last layer,
            such as ``"head"``; by default all parameters except normalization parameters.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.

    Examples:
        >>> from alfa import MLP, TaskHead
        >>> from alfa.models import Head, Headed
        >>> class Means(Head):
        ...     task_parameters = ("centers",)
        ...
        ...     def __init__(self, feature_shape, num_outputs):
        ...         super().__init__()
        ...         self.centers = nn.Parameter(torch.zeros(num_outputs, *feature_shape))
        ...
        ...     def fit(self, z, y, way):
        ...         return {"centers": prototypes(z, y, way)}
        ...
        ...     def forward(self, z):
        ...         return -torch.cdist(z, self.centers)
        >>> backbone = MLP((3,), 5, hidden=[8])
        >>> model = Headed(backbone, Means(backbone.feature_shape, 5))
        >>> TaskHead(model, adapt="head").layers
        Layers({'head.centers': torch.Size([5, 8])})

    Raises:
        ConfigError: the layer does not exist, has no weights to compute, or is not adapted.
    """

    classification_only = True
    variable_way = True

    def __init__(
        self, model: nn.Module, *, adapt: Patterns | None = None, head: str | None = None
    ) -> None:
        super().__init__(model, adapt=adapt)
        self.head = last_layer(model) if head is None else head
        names = [name for name, _ in model.named_parameters()]
        computed = ("weight", "bias")
        if self.head in dict(model.named_modules()):
            computed = getattr(model.get_submodule(self.head), "task_parameters", computed)
        self._head_names = {f"{self.head}.{name}": name for name in computed}
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
        module = model.get_submodule(self.head)
        self._check_head(module)
        if isinstance(module, Head):
            self.variable_way = module.variable_way

    def _check_head(self, module: nn.Module) -> None:
        """Raise ConfigError unless this init can compute the weights of the last layer."""
        is_head, is_own = isinstance(module, Head), type(self).initial_head is TaskHead.initial_head
        if is_own and not is_head:
            raise ConfigError(
                f"the init TaskHead needs a model with a head that computes its own weights, but "
                f"{self.head} is a {type(module).__name__}; wrap the model in alfa.models.Headed "
                "(in a configuration, add a [head]), or use PrototypeHead."
            )
        if is_head and not is_own:
            raise ConfigError(
                f"the init {type(self).__name__} computes a linear layer, but {self.head} is a "
                f"{type(module).__name__}; use the init TaskHead ('task-head')."
            )

    def initial_head(self, body: Params, support: Support, way: int) -> Mapping[str, Tensor]:
        """Return the weights of the last layer of every task by name.

        For a linear layer these are ``"weight"``, ``[task, class, feature]``, and ``"bias"``,
        ``[task, class]``. By default, the model's head computes its own.

        Args:
            body: the other adapted layers.
            support: the support sets.
            way: number of classes of each task.
        """
        module: Any = self.model.get_submodule(self.head)
        weights: Mapping[str, Tensor] = module.fit(support.embed(body, self.head), support.y, way)
        return weights

    def initial_body(self, theta: Params, support: Support, way: int) -> Params:
        """Return the other adapted layers of every task, by default theta.

        Args:
            theta: all adapted layers, `LearnedInit.start`; the last layer is replaced later.
            support: the support sets.
            way: number of classes of each task.
        """
        return theta

    def start(self, support: Support) -> Params:
        way = _num_classes(support.y)
        theta = self.initial_body(super().start(support), support, way)
        names = [name for name in self._layers if name not in self._head_names]
        body = Params(theta.flat[:, :0], Layers({}))
        if names:
            body = Params.of({name: theta[name] for name in names})
        computed = self.initial_head(body, support, way)
        head = {name: computed[own] for name, own in self._head_names.items()}
        rows = [head.get(name, theta[name]).reshape(len(theta.flat), -1) for name in self._layers]
        shapes = {name: head[name].shape[1:] for name in head}
        layers = self._layers
        if any(layers[name] != shape for name, shape in shapes.items()):
            # Not cached for each number of classes: `Layers` itself caches large tensors.
            layers = Layers({**layers, **shapes})
        return Params(torch.cat(rows, dim=1), layers)

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        of_model = dict(self.model.named_parameters())
        yield from (p for name, p in of_model.items() if name not in self._head_names)
        yield from (p for name, p in self.named_parameters() if not name.startswith("model."))


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

    def initial_head(self, body: Params, support: Support, way: int) -> dict[str, Tensor]:
        c = prototypes(support.embed(body, self.head), support.y, way)
        return {"weight": 2 * c, "bias": -c.square().sum(2)}


@register_init("zero-head")
class ZeroHead(TaskHead):
    """MAML for any number of classes: the last layer starts at zero."""

    def initial_head(self, body: Params, support: Support, way: int) -> dict[str, Tensor]:
        last = self.model.get_parameter(f"{self.head}.weight")
        shape = support.num_tasks, way
        weight = last.new_zeros(*shape, last.shape[1])
        return {"weight": weight, "bias": last.new_zeros(shape)}


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
