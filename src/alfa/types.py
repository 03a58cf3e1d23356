"""Types that every package shares.

Every tensor in the inner loop has a leading *task* dimension: parameters are ``[task, ...]``, data
``[task, example, ...]``, and losses ``[task]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import Tensor

State = tuple[Tensor | None, ...]
"""Tensors that an update rule passes to its next inner step."""

Order = Literal["second", "first", "none"]
"""How the outer gradient treats inner gradients: it differentiates them (``second``) or takes them
as constants (``first``). With ``none`` there is no outer gradient, as in evaluation."""

PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
NonNegativeInt = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]


class Layers(Mapping[str, torch.Size]):
    """Names and shapes of the adapted layers, in order and without the task dimension.

    A *layer* is one named parameter tensor. A *row* holds the values of all layers of a task.

    Attributes:
        sizes: number of values in each layer.
        bounds: start of each layer in a row, and the length of the row.
    """

    def __init__(self, shapes: Mapping[str, torch.Size]) -> None:
        self._shapes = {name: torch.Size(shape) for name, shape in shapes.items()}
        self.sizes = [shape.numel() for shape in self._shapes.values()]
        self.bounds = np.cumsum([0, *self.sizes])
        self._index: dict[torch.device, Tensor] = {}
        self._averages: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._membership: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def index(self, device: torch.device) -> Tensor:
        """Return the layer number of each value of a row."""
        if device not in self._index:
            sizes = torch.tensor(self.sizes, device=device, dtype=torch.long)
            self._index[device] = torch.repeat_interleave(sizes)
        return self._index[device]

    def averages(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the matrix ``[size, layer]`` that maps a row to the mean of each layer."""
        if (device, dtype) not in self._averages:
            membership = self.membership(device, dtype)
            # The mean of an empty layer is 0.
            counts = membership.sum(1, keepdim=True).clamp_min(1)
            self._averages[device, dtype] = (membership / counts).T
        return self._averages[device, dtype]

    def membership(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return ``[layer, size]``: 1 if the value of a row belongs to the layer, else 0."""
        if (device, dtype) not in self._membership:
            numbers = torch.arange(len(self), device=device).unsqueeze(1)
            self._membership[device, dtype] = (self.index(device) == numbers).to(dtype)
        return self._membership[device, dtype]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layers) and list(self.items()) == list(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, name: str) -> torch.Size:
        return self._shapes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"Layers({self._shapes})"


class Params(Mapping[str, Tensor]):
    """The adapted parameters of a stack of tasks: one row per task, viewed as named layers.

    ``params["linear1.weight"]`` is ``[task, ...]``. Because a row holds all layers of a task, an
    inner update is one operation for any number of layers.

    Args:
        flat: ``[task, size]``, the flattened layers of each task, concatenated.
        layers: names and shapes of the layers.

    Examples:
        >>> import torch
        >>> from alfa import Params
        >>> params = Params.of({"w": torch.ones(4, 3, 2), "b": torch.zeros(4, 3)})  # four tasks
        >>> params.flat.shape, params["w"].shape
        (torch.Size([4, 9]), torch.Size([4, 3, 2]))
    """

    def __init__(self, flat: Tensor, layers: Layers) -> None:
        self.flat = flat
        self.layers = layers
        self._views: dict[str, Tensor] | None = None

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Params:
        """Build parameters from one ``[task, ...]`` tensor per layer."""
        if isinstance(tensors, Params):
            return tensors
        layers = Layers({name: tensor.shape[1:] for name, tensor in tensors.items()})
        rows = [tensor.reshape(tensor.shape[0], -1) for tensor in tensors.values()]
        return cls(torch.cat(rows, dim=1), layers)

    def like(self, flat: Tensor) -> Params:
        """Return the same layers with other values."""
        return Params(flat, self.layers)

    @property
    def num_tasks(self) -> int:
        return self.flat.shape[0]

    def __getitem__(self, name: str) -> Tensor:
        if self._views is not None:
            return self._views[name]
        parts = self.flat.split(self.layers.sizes, dim=1)
        views: dict[str, Tensor] = {
            layer: part.unflatten(1, shape) if shape else part.squeeze(1)
            for part, (layer, shape) in zip(parts, self.layers.items(), strict=True)
        }
        # Views made under `no_grad` have no graph, so later calls must not reuse them.
        if torch.is_grad_enabled() or not self.flat.requires_grad:
            self._views = views
        return views[name]

    def __contains__(self, name: object) -> bool:
        # The inherited method would create all views.
        return name in self.layers

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


@dataclass(frozen=True)
class Episode:
    """A stack of few-shot tasks, each with a support and a query set.

    Attributes:
        support_x: inputs of the support sets, ``[task, support, ...]``.
        support_y: targets of the support sets, ``[task, support, ...]``.
        query_x: inputs of the query sets, ``[task, query, ...]``.
        query_y: targets of the query sets, ``[task, query, ...]``.
        classes: the index of each label's class in the split, ``[task, way]``; None if the tasks
            have no common classes.

    Examples:
        >>> import torch
        >>> from alfa import Episode
        >>> x = torch.randn(4, 20, 1)  # four tasks of twenty points
        >>> Episode(x[:, :10], x[:, :10].sin(), x[:, 10:], x[:, 10:].sin()).num_tasks
        4
    """

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor
    query_y: Tensor
    classes: Tensor | None = None

    @property
    def num_tasks(self) -> int:
        return self.support_x.shape[0]

    def __getitem__(self, tasks: slice) -> Episode:
        return self._map(lambda tensor: tensor[tasks])

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Episode:
        """Move the tensors to a device, and convert floating-point tensors to `dtype`."""
        return self._map(lambda t: t.to(device, dtype if t.is_floating_point() else None))

    def _map(self, convert: Callable[[Tensor], Tensor]) -> Episode:
        given = {name: convert(t) for name, t in vars(self).items() if t is not None}
        return Episode(**given)


@dataclass(frozen=True)
class Rates:
    """The learning rates and weight-decay terms of one inner step (Eq. 4).

    Attributes:
        alpha: the factor on the direction: one tensor that broadcasts to ``[task, layer]``, or a
            mapping from each layer's name to a tensor that broadcasts to its ``[task, ...]``.
        beta: the factor on the weights, in the same form.
        direction: replaces the gradient, with the same layers; None means the gradient.
        state: passed to the rule at the next step.

    Examples:
        >>> import torch
        >>> from alfa import Rates
        >>> Rates(alpha=torch.tensor(0.1), beta=torch.tensor(1.0)).alpha
        tensor(0.1000)
    """

    alpha: Tensor | Mapping[str, Tensor]
    beta: Tensor | Mapping[str, Tensor]
    direction: Params | None = None
    state: State = field(default=(), repr=False)

    def per_layer(self, layers: Layers, num_tasks: int) -> tuple[Tensor, Tensor]:
        """Return alpha and beta as ``[task, layer]``, the mean of each layer's rates."""
        return _per_layer(self.alpha, layers, num_tasks), _per_layer(self.beta, layers, num_tasks)


def _per_layer(rate: Tensor | Mapping[str, Tensor], layers: Layers, num_tasks: int) -> Tensor:
    if isinstance(rate, Tensor):
        return rate.expand(num_tasks, len(layers))
    means = []
    for name, shape in layers.items():
        values = rate[name]
        values = values[(None,) * (1 + len(shape) - values.ndim)]
        means.append((values.flatten(1).mean(1) if shape else values).expand(num_tasks))
    return torch.stack(means, dim=1)
