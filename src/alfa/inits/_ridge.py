"""R2D2: the last layer solves a ridge regression."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.inits._base import Support, register_init
from alfa.inits._heads import TaskHead
from alfa.inits._inits import Patterns
from alfa.types import Params, PositiveFloat


@register_init("ridge-head")
class RidgeHead(TaskHead):
    """R2D2: the last layer starts as a ridge regression to the labels (Bertinetto et al., 2019).

    Z holds the embedded support examples and a column of ones, and Y the one-hot labels, both
    divided by the square root of the number of examples as in the published code. Then
    W = Z^T (Z Z^T + lambda I)^-1 Y, and the logits are a Z' W for queries Z', with the meta-learned
    scale a. The published offset b shifts all logits of an example alike and has no effect on
    probabilities, so it is left out. The outer gradient flows through the solution.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, which must include the last layer.
        head: the name of the last layer, as in `TaskHead`.
        regularization: lambda.
        scale_start: the initial value of a; the authors use 10 for CIFAR-FS and Omniglot, and
            0.0001 for miniImageNet.

    Examples:
        >>> import torch
        >>> from alfa import Conv4, SGD, adapt, cross_entropy
        >>> from alfa.inits import RidgeHead
        >>> model = Conv4((3, 16, 16), 5)
        >>> init = RidgeHead(model, adapt="head")
        >>> x, y = torch.randn(1, 14, 3, 16, 16), torch.arange(7).repeat(2)[None]  # 7 classes
        >>> options = {"init": init, "rule": SGD(init.layers), "loss": cross_entropy}
        >>> adapt(model, x, y, num_steps=0, **options).predict(x).shape
        torch.Size([1, 14, 7])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        adapt: Patterns | None = None,
        head: str | None = None,
        regularization: PositiveFloat = 50.0,
        scale_start: float = 10.0,
    ) -> None:
        super().__init__(model, adapt=adapt, head=head)
        if not regularization > 0:
            raise ConfigError(f"`regularization` must be greater than 0, got {regularization}.")
        self.regularization = regularization
        self.scale = nn.Parameter(torch.tensor(float(scale_start)))

    def initial_head(self, body: Params, support: Support, way: int) -> Mapping[str, Tensor]:
        embedded = support.embed(body, self.head)
        root = embedded.shape[1] ** 0.5
        z = torch.cat([embedded, torch.ones_like(embedded[..., :1])], dim=2) / root
        y = nn.functional.one_hot(support.y, way).to(z.dtype) / root
        identity = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        # W = Z^T (Z Z^T + lambda I)^-1 Y
        w = z.mT @ torch.linalg.solve(z @ z.mT + self.regularization * identity, y)
        w = self.scale * w
        return {"weight": w[:, :-1].mT, "bias": w[:, -1]}
