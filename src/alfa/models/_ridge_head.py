"""The head of the photo classifier: ridge regression in which classes weigh equally."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.types import PositiveFloat


@dataclass(frozen=True)
class Problem:
    """A weighted least-squares problem for each task.

    Attributes:
        targets: one-hot labels, ``[task, example, class]``.
        counts: the number of examples of each class, ``[task, 1, class]``.
        w: the weights of the examples, ``[task, example, 1]``.
    """

    targets: Tensor
    counts: Tensor
    w: Tensor

    @classmethod
    def of(cls, y: Tensor, way: int, dtype: torch.dtype) -> Self:
        """Weigh classes equally; each has the harmonic mean of their numbers of examples."""
        targets = F.one_hot(y, way).to(dtype)
        counts = targets.sum(1, keepdim=True)
        if bool((counts == 0).any()):
            task, _, missing = (counts == 0).nonzero()[0].tolist()
            raise ConfigError(
                f"the support set of task {task} has no example of class {missing}, but ridge "
                f"regression needs at least one; number the classes of a task from 0 to {way - 1}."
            )
        w = (targets / counts).sum(2, keepdim=True) * (way / (1 / counts).sum(2, keepdim=True))
        return cls(targets, counts, w)

    @property
    def e(self) -> Tensor:
        """The residuals of the weighted mean, times the roots of the weights."""
        mean = (self.w * self.targets).sum(1, keepdim=True) / self.w.sum(1, keepdim=True)
        return self.w.sqrt() * (self.targets - mean)

    def centered(self, k: Tensor) -> Tensor:
        """Return the products of centered features, times the roots of both weights.

        Args:
            k: the products of features, ``[task, example, example]``.
        """
        share = self.w / self.w.sum(1, keepdim=True)
        mean = k @ share
        root = self.w.sqrt()
        return root * (k - mean - mean.mT + share.mT @ mean) * root.mT

    def solve(self, k: Tensor, gram: Tensor, regularization: float) -> tuple[Tensor, Tensor]:
        """Return the dual variables ``[task, example, class]`` and biases ``[task, class]``.

        Args:
            k: the products of features.
            gram: `centered` of them.
            regularization: lambda.
        """
        targets, counts, w = self.targets, self.counts, self.w
        total, way = w.sum(1, keepdim=True), targets.shape[2]
        eye = torch.eye(k.shape[1], dtype=k.dtype, device=k.device)
        solved = torch.linalg.solve(gram + regularization * eye, torch.cat([self.e, gram], dim=2))
        # W^T = A^T (A A^T + lambda I)^-1 E, so W is a sum over examples. The rows of A have the
        # weighted mean 0, and so have these factors.
        alpha = w.sqrt() * solved[..., :way]
        # The optimal b makes the weighted mean of the residuals zero.
        bias = (w * (targets - k @ alpha)).sum(1, keepdim=True) / total
        # Without example i, its residual is larger by the factor 1 / (1 - h_ii).
        h = solved[..., way:].diagonal(dim1=1, dim2=2).unsqueeze(2) + w / total
        left_out = targets - (targets - k @ alpha - bias) / (1 - h).clamp(min=1e-6)
        mean = (targets / counts).mT @ left_out
        fewest = counts.amin(2, keepdim=True)
        strength = (1 - fewest / counts.amax(2, keepdim=True)) * (fewest > 1)
        bias = bias + strength * (1 / way - mean.mean(1, keepdim=True))
        return alpha, bias.squeeze(1)


@register_head("ridge")
class RidgeRegression(Head):
    """Ridge regression from features of norm 1 to one-hot labels, with equally weighted classes.

    With z the feature divided by its norm, the outputs are s (W z + b), in which W and b minimize
    sum_i w_i |W z_i + b - e_{y_i}|^2 + lambda |W|^2 over the support set. The weights w_i are
    inversely proportional to the number n_k of examples of a class, and the total weight of each
    class is the harmonic mean of these numbers. A class with more examples would still be favored,
    because W fits a larger part of its features. The shift of b that removes this makes the mean
    output of each class over left-out examples, in which classes weigh equally, 1 / way. It is
    multiplied by 1 - min n_k / max n_k, so equal numbers need none, and it is zero if a class has
    one example, which cannot be left out. The outputs for left-out examples follow from the
    diagonal of the hat matrix.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes.
        regularization: lambda.
        scale: s, which turns the outputs, about 0 to 1, into logits.

    Examples:
        >>> import torch
        >>> from alfa.models import RidgeRegression
        >>> head = RidgeRegression((8,), 5)
        >>> head.fit(torch.randn(2, 10, 8), torch.arange(10).expand(2, -1) % 5, 5)["weight"].shape
        torch.Size([2, 5, 8])
    """

    task_parameters = ("weight", "bias")

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        regularization: PositiveFloat = 0.1,
        scale: PositiveFloat = 10.0,
    ) -> None:
        super().__init__()
        for name, value in (("regularization", regularization), ("scale", scale)):
            if not value > 0:
                raise ConfigError(f"`{name}` must be above 0, got {value}.")
        self.regularization, self.scale = regularization, scale
        self.weight = nn.Parameter(torch.zeros(num_outputs, math.prod(feature_shape)))
        self.bias = nn.Parameter(torch.zeros(num_outputs))

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        z = F.normalize(z, dim=2)
        problem = Problem.of(y, way, z.dtype)
        k = z @ z.mT
        alpha, bias = problem.solve(k, problem.centered(k), self.regularization)
        return {"weight": self.scale * (alpha.mT @ z), "bias": self.scale * bias}

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(F.normalize(z, dim=-1), self.weight, self.bias)
