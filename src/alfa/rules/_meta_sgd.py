"""Meta-SGD: a meta-learned learning rate of each weight."""

from collections.abc import Mapping

import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.rules._base import Rule, register_rule
from alfa.types import Params, PositiveFloat, Rates, State


@register_rule("meta-sgd")
class MetaSGD(Rule):
    """Gradient descent with a meta-learned learning rate of each weight (Li et al., 2017).

    theta' = theta - alpha * grad, with the shape of theta for alpha and an element-wise product.
    Learning rates may become negative, so alpha also learns the direction of the update.

    Args:
        layers: names and shapes of the adapted layers.
        start: the initial value of all entries of alpha.

    Examples:
        >>> import torch
        >>> from alfa.rules import MetaSGD
        >>> rule = MetaSGD({"w": torch.Size([3, 2]), "b": torch.Size([3])})
        >>> rule.alpha.shape
        torch.Size([9])
    """

    has_fixed_layers = True

    def __init__(self, layers: Mapping[str, torch.Size], *, start: PositiveFloat = 0.01) -> None:
        super().__init__(layers)
        if not start > 0:
            raise ConfigError(f"`start` must be greater than 0, got {start}.")
        self.alpha = nn.Parameter(torch.full((sum(self.layers.sizes),), float(start)))

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        # Under `no_grad`, a view of a parameter still requires a gradient.
        alpha = self.alpha if torch.is_grad_enabled() else self.alpha.detach()
        return Rates(Params(alpha.unsqueeze(0), self.layers), params.flat.new_ones(()))
