"""The init of Activation-to-Parameter: a learned map from mean features to class weights."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.inits._base import Support, register_init
from alfa.inits._heads import TaskHead, prototypes
from alfa.inits._inits import Patterns
from alfa.ops import uninitialized
from alfa.types import Params


@register_init("weight-map")
class WeightMap(TaskHead):
    """The weights of a class are a learned function of its mean features (Qiao et al., 2018).

    With a_k the mean feature of class k, W_k = psi(a_k) and b_k = 0. psi normalizes a_k, applies a
    linear layer, ReLU, and another linear layer, and normalizes the result. Both layers start as
    the identity, so W_k starts as the imprinted weight a_k / |a_k| if features are not negative.
    The features of queries are not normalized.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, which must include the last layer;
            by default all parameters except normalization parameters.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.

    Examples:
        >>> import torch
        >>> from alfa import MLP, SGD, adapt, cross_entropy
        >>> from alfa.inits import WeightMap
        >>> model = MLP((3,), 5, hidden=[8])
        >>> init = WeightMap(model, adapt="head")
        >>> x, y = torch.randn(1, 14, 3), torch.arange(7).repeat(2)[None]  # 7 classes
        >>> options = {"init": init, "rule": SGD(init.layers), "loss": cross_entropy}
        >>> adapt(model, x, y, num_steps=0, **options).params["linear2.weight"].shape
        torch.Size([1, 7, 8])
    """

    def __init__(
        self, model: nn.Module, *, adapt: Patterns | None = None, head: str | None = None
    ) -> None:
        super().__init__(model, adapt=adapt, head=head)
        size = model.get_parameter(f"{self.head}.weight").shape[1]
        self.first, self.second = (uninitialized(nn.Linear, size, size) for _ in range(2))
        for layer in (self.first, self.second):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def initial_head(self, body: Params, support: Support, way: int) -> dict[str, Tensor]:
        a = prototypes(support.embed(body, self.head), support.y, way)
        # W_k = psi(a_k)
        hidden = self.first(F.normalize(a, dim=2)).relu()
        weight = F.normalize(self.second(hidden), dim=2)
        return {"weight": weight, "bias": torch.zeros_like(weight[..., 0])}
