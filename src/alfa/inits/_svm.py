"""MetaOptNet: the last layer is a support vector machine."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.inits._base import Support, register_init
from alfa.inits._heads import TaskHead
from alfa.inits._inits import Patterns
from alfa.ops import crammer_singer_dual
from alfa.types import Params, PositiveFloat

# The solver factors matrices with as many rows.
_MAX_VARIABLES = 5_000


@register_init("svm-head")
class SVMHead(TaskHead):
    """MetaOptNet: the last layer starts as a support vector machine (Lee et al., 2019).

    With embedded support examples z_i of class y_i, w_m = sum_i alpha_i^m z_i, and alpha minimizes
    1/2 sum_m |w_m|^2 - sum_i alpha_i^{y_i} subject to alpha_i^m <= C [m = y_i] and
    sum_m alpha_i^m = 0, the dual problem of Crammer and Singer (2001). As in the published code,
    the additional term ridge / 2 sum alpha^2 makes the solution unique. The logits are w_m z times
    a meta-learned scale, which starts at 1. The outer gradient flows through the solution, which
    `alfa.ops.crammer_singer_dual` computes in float64.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, which must include the last layer.
        head: the name of the last layer, as in `TaskHead`.
        c: C, the weight of the training errors.
        ridge: the weight of the squares of the dual variables.

    Examples:
        >>> import torch
        >>> from alfa import Conv4, SGD, adapt, cross_entropy
        >>> from alfa.inits import SVMHead
        >>> model = Conv4((3, 16, 16), 5)
        >>> init = SVMHead(model, adapt="head")
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
        c: PositiveFloat = 0.1,
        ridge: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(model, adapt=adapt, head=head)
        for name, value in (("c", c), ("ridge", ridge)):
            if not value > 0:
                raise ConfigError(f"`{name}` must be greater than 0, got {value}.")
        self.c, self.ridge = c, ridge
        self.scale = nn.Parameter(torch.tensor(1.0))

    def initial_head(self, body: Params, support: Support, way: int) -> Mapping[str, Tensor]:
        num_examples = support.y.shape[1]
        if num_examples * way > _MAX_VARIABLES:
            raise ConfigError(
                f"the support vector machine of {num_examples} support examples and {way} classes "
                f"has {num_examples * way:,} dual variables, but at most {_MAX_VARIABLES:,} are "
                "supported; use smaller tasks, or the init 'ridge-head'."
            )
        embedded = support.embed(body, self.head)
        z = embedded.double()
        e = nn.functional.one_hot(support.y, way).to(z.dtype)
        identity = torch.eye(num_examples, dtype=z.dtype, device=z.device)
        alpha = crammer_singer_dual(z @ z.mT + self.ridge * identity, e, c=self.c)
        w = self.scale * (alpha.mT @ z).to(embedded.dtype)
        return {"weight": w, "bias": torch.zeros_like(w[:, :, 0])}
