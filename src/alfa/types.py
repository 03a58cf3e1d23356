"""Plain definitions that every layer of the package shares.

Everything in the inner loop carries a leading *task* dimension: parameters are
``[task, ...]``, data ``[task, example, ...]`` and losses ``[task]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import Tensor

State = tuple[Tensor | None, ...]
"""What an update rule remembers from one inner step to the next."""

Order = Literal["second", "first", "none"]
"""How far the outer gradient sees: through the inner gradients (``second``),
past them as constants (``first``), or not at all (``none``, for evaluation)."""

PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
NonNegativeInt = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]


class Layers(Mapping[str, torch.Size]):
    """Names and shapes of the layers that are adapted, in order.

    A *layer* is one named parameter tensor; its shape is without the task dimension.

    Attributes:
        sizes: the number of values in each layer.
        bounds: where each layer begins in a row that holds all of them, and where the row ends.
    """

    def __init__(self, shapes: Mapping[str, torch.Size]) -> None:
        self._shapes = {name: torch.Size(shape) for name, shape in shapes.items()}
        self.sizes = [shape.numel() for shape in self._shapes.values()]
        self.bounds = np.cumsum([0, *self.sizes])
        self._index: dict[torch.device, Tensor] = {}
        self._averages: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._membership: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def index(self, device: torch.device) -> Tensor:
        """The number of the layer that each value of a row belongs to."""
        if device not in self._index:
            numbers = torch.arange(len(self.sizes), device=device)
            sizes = torch.tensor(self.sizes, device=device)
            self._index[device] = numbers.repeat_interleave(sizes)
        return self._index[device]

    def averages(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """``[size, layer]``: a row times this gives the mean of every layer."""
        if (device, dtype) not in self._averages:
            membership = self.membership(device, dtype)
            # A layer without values has a mean of 0.
            counts = membership.sum(1, keepdim=True).clamp_min(1)
            self._averages[device, dtype] = (membership / counts).T
        return self._averages[device, dtype]

    def membership(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """``[layer, size]``: 1 where a value of a row belongs to the layer, else 0."""
        if (device, dtype) not in self._membership:
            numbers = torch.arange(len(self.sizes), device=device).unsqueeze(1)
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
    """The adapted parameters of a stack of tasks: one row per task, seen as named layers.

    ``params["linear1.weight"]`` is ``[task, ...]``. That all layers of a task lie in one row
    makes an inner update one operation, however many layers there are.

    Args:
        flat: ``[task, size]``, every layer flattened, one after the other.
        layers: which layers these are.

    Example:
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
        """Parameters from one ``[task, ...]`` tensor for each layer."""
        if isinstance(tensors, Params):
            return tensors
        layers = Layers({name: tensor.shape[1:] for name, tensor in tensors.items()})
        rows = [tensor.reshape(tensor.shape[0], -1) for tensor in tensors.values()]
        return cls(torch.cat(rows, dim=1), layers)

    def like(self, flat: Tensor) -> Params:
        """Other values of the same layers."""
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
        # Whoever looks without a gradient must not leave views without one to others.
        if torch.is_grad_enabled() or not self.flat.requires_grad:
            self._views = views
        return views[name]

    def __contains__(self, name: object) -> bool:
        # The default looks the layer up, which makes all views.
        return name in self.layers

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


@dataclass(frozen=True)
class Episode:
    """A stack of few-shot tasks, each with a support and a query set.

    Attributes:
        support_x: ``[task, support, ...]``, what each task is learned from.
        support_y: ``[task, support, ...]``, its targets.
        query_x: ``[task, query, ...]``, what each adapted model is judged on.
        query_y: ``[task, query, ...]``, its targets.

    Example:
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

    @property
    def num_tasks(self) -> int:
        return self.support_x.shape[0]

    def __getitem__(self, tasks: slice) -> Episode:
        """Some of the tasks."""
        return Episode(
            self.support_x[tasks], self.support_y[tasks], self.query_x[tasks], self.query_y[tasks]
        )

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Episode:
        """The same tasks elsewhere; `dtype` changes floating-point tensors only."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None)

        return Episode(
            move(self.support_x), move(self.support_y), move(self.query_x), move(self.query_y)
        )


@dataclass(frozen=True)
class Rates:
    """The learning rates and weight-decay terms of one inner step (Eq. 4).

    Attributes:
        alpha: either one tensor that broadcasts to ``[task, layer]``, or a mapping from
            layer name to a tensor that broadcasts to that layer's ``[task, ...]``.
        beta: the same for the factor on the weights.
        state: passed back to the rule at the next step.

    Example:
        >>> import torch
        >>> from alfa import Rates
        >>> Rates(alpha=torch.tensor(0.1), beta=torch.tensor(1.0)).alpha
        tensor(0.1000)
    """

    alpha: Tensor | Mapping[str, Tensor]
    beta: Tensor | Mapping[str, Tensor]
    state: State = field(default=(), repr=False)

    def per_layer(self, layers: Layers, num_tasks: int) -> tuple[Tensor, Tensor]:
        """Alpha and beta, ``[task, layer]`` each; of a rate for each weight, the layer's mean."""
        return _per_layer(self.alpha, layers, num_tasks), _per_layer(self.beta, layers, num_tasks)


def _per_layer(rate: Tensor | Mapping[str, Tensor], layers: Layers, num_tasks: int) -> Tensor:
    if isinstance(rate, Tensor):
        return rate.expand(num_tasks, len(layers))
    means = [_mean(rate[name], len(shape)).expand(num_tasks) for name, shape in layers.items()]
    return torch.stack(means, dim=1)


def _mean(rate: Tensor, num_dims: int) -> Tensor:
    """The means, one for each task or for all of them, of what broadcasts to ``[task, ...]``."""
    rate = rate[(None,) * (1 + num_dims - rate.ndim)]
    return rate.flatten(1).mean(1) if rate.ndim > 1 else rate
