"""The head of Baseline++: cosine similarities to one vector per class."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.types import Count, NonNegativeFloat, PositiveFloat

# Added to the norm of features.
_EPS = 1e-5


@register_head("cosine-sgd")
class CosineSGDHead(Head):
    """A cosine classifier trained by SGD on each support set (Chen et al., 2019, Baseline++).

    The outputs are scale * g_k cos(z, v_k), with a vector v_k and a norm g_k for each class. `fit`
    starts every task from the same random vectors and minimizes cross-entropy in small batches,
    with weight decay on v and g. The outer gradient flows through all steps.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes.
        scale: the factor on the cosines.
        num_epochs: number of passes over the support set.
        batch_size: number of examples per step.
        learning_rate: the step size.
        momentum: the fraction of the running direction that remains in each step.
        dampening: one minus the factor on the gradient, from the second step on.
        weight_decay: the coefficient of the l2 term.
        generator: source of the random vectors and of the order of the examples.

    Examples:
        >>> import torch
        >>> from alfa.models import CosineSGDHead
        >>> head = CosineSGDHead((8,), 5, num_epochs=2)
        >>> found = head.fit(torch.randn(2, 10, 8), torch.arange(10).expand(2, -1) % 5, 5)
        >>> found["vectors"].shape, found["norms"].shape
        (torch.Size([2, 5, 8]), torch.Size([2, 5]))
    """

    task_parameters = ("vectors", "norms")
    seed: Tensor

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        scale: PositiveFloat = 2.0,
        num_epochs: Count = 100,
        batch_size: Count = 4,
        learning_rate: PositiveFloat = 0.01,
        momentum: NonNegativeFloat = 0.9,
        dampening: NonNegativeFloat = 0.9,
        weight_decay: NonNegativeFloat = 0.001,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("num_epochs", num_epochs), ("batch_size", batch_size)):
            if value < 1:
                raise ConfigError(f"`{name}` must be at least 1, got {value}.")
        self.scale, self.num_epochs, self.batch_size = scale, num_epochs, batch_size
        self.learning_rate, self.momentum, self.dampening = learning_rate, momentum, dampening
        self.weight_decay = weight_decay
        self.size = math.prod(feature_shape)
        # A buffer, so that a saved model draws the same numbers.
        seed = torch.randint(2**62, (), generator=generator)
        self.register_buffer("seed", seed)
        vectors = self._draw(num_outputs, torch.Generator().manual_seed(int(seed)))
        self.vectors = nn.Parameter(vectors)
        self.norms = nn.Parameter(vectors.norm(dim=1))

    def _draw(self, num_classes: int, generator: torch.Generator) -> Tensor:
        """Draw vectors as torch draws the weights of a linear layer."""
        drawn = torch.empty(num_classes, self.size)
        return drawn.uniform_(-(self.size**-0.5), self.size**-0.5, generator=generator)

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        generator = torch.Generator().manual_seed(int(self.seed))
        v = self._draw(way, generator).to(z).expand(len(z), -1, -1)
        g = v.norm(dim=2)
        z, target = z / (z.norm(dim=2, keepdim=True) + _EPS), F.one_hot(y, way).to(z.dtype)
        state: list[Tensor] | None = None
        for _ in range(self.num_epochs):
            order = torch.randperm(z.shape[1], generator=generator).to(z.device)
            for batch in order.split(self.batch_size):
                gradients = self._gradients(v, g, z[:, batch], target[:, batch])
                decayed = [
                    d + self.weight_decay * w for d, w in zip(gradients, (v, g), strict=True)
                ]
                state = decayed if state is None else self._directions(state, decayed)
                v, g = v - self.learning_rate * state[0], g - self.learning_rate * state[1]
        return {"vectors": v, "norms": g}

    def _directions(self, state: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        new = 1 - self.dampening
        return [self.momentum * s + new * d for s, d in zip(state, gradients, strict=True)]

    def _gradients(self, v: Tensor, g: Tensor, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the mean cross-entropy in v and g."""
        length = v.norm(dim=2, keepdim=True)
        unit = v / length
        p = (self.scale * z @ (g.unsqueeze(2) * unit).mT).softmax(2)
        # The gradient in the weights g_k v_k / |v_k|
        d = self.scale * (p - target).mT @ z / z.shape[1]
        along = (d * unit).sum(2)
        return g.unsqueeze(2) / length * (d - along.unsqueeze(2) * unit), along

    def forward(self, z: Tensor) -> Tensor:
        z = z / (z.norm(dim=1, keepdim=True) + _EPS)
        weight = self.norms.unsqueeze(1) * F.normalize(self.vectors, dim=1)
        return self.scale * F.linear(z, weight)
