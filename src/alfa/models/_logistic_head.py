"""The head of RFS: logistic regression on normalized features."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.ops import logistic_regression
from alfa.types import PositiveFloat


@register_head("logistic")
class LogisticHead(Head):
    """Logistic regression on features of norm 1 (Tian et al., 2020, RFS, section 3.2).

    With z the feature divided by its norm, the outputs are W z + b, and W and b minimize
    |W|^2 / 2 + C sum_i cross-entropy(W z_i + b, y_i) over the support set.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes.
        inverse_regularization: C.
        normalize: divide features by their norm.

    Examples:
        >>> import torch
        >>> from alfa.models import LogisticHead
        >>> head = LogisticHead((8,), 5)
        >>> head.fit(torch.randn(2, 10, 8), torch.arange(10).expand(2, -1) % 5, 5)["weight"].shape
        torch.Size([2, 5, 8])
    """

    task_parameters = ("weight", "bias")

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        inverse_regularization: PositiveFloat = 1.0,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        if not inverse_regularization > 0:
            raise ConfigError(
                f"`inverse_regularization` must be above 0, got {inverse_regularization}."
            )
        self.inverse_regularization, self.normalize = inverse_regularization, normalize
        self.weight = nn.Parameter(torch.zeros(num_outputs, math.prod(feature_shape)))
        self.bias = nn.Parameter(torch.zeros(num_outputs))

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        c = self.inverse_regularization
        weight, bias = logistic_regression(self._inputs(z), y, way, inverse_regularization=c)
        return {"weight": weight, "bias": bias}

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(self._inputs(z), self.weight, self.bias)

    def _inputs(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=-1) if self.normalize else z
