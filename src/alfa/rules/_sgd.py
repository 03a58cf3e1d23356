"""Gradient descent with constant rates (Eqs. 1 and 3)."""

from collections.abc import Mapping

import torch

from alfa.errors import ConfigError
from alfa.rules._base import Rule, register_rule
from alfa.types import NonNegativeFloat, Params, PositiveFloat, Rates, State


@register_rule("sgd")
class SGD(Rule):
    """Gradient descent, theta' = (1 - alpha lambda) theta - alpha grad; MAML has lambda = 0.

    Args:
        layers: names and shapes of the adapted layers.
        learning_rate: alpha.
        weight_decay: lambda, the weight of the l2 term.

    Examples:
        >>> import torch
        >>> from alfa import SGD, Params
        >>> rule = SGD({"w": torch.Size([2])}, learning_rate=0.1)
        >>> theta = Params.of({"w": torch.ones(1, 2)})
        >>> rates = rule.rates(0, theta, theta)
        >>> round(float(rates.alpha), 4), float(rates.beta)
        (0.1, 1.0)
    """

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        learning_rate: PositiveFloat = 0.01,
        weight_decay: NonNegativeFloat = 0.0,
    ) -> None:
        super().__init__(layers)
        if not learning_rate > 0 or not weight_decay >= 0:
            raise ConfigError(
                "`learning_rate` must be greater than 0 and `weight_decay` at least 0, got "
                f"{learning_rate} and {weight_decay}."
            )
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        alpha = params.flat.new_tensor(self.learning_rate)
        # Eq. 3: beta = 1 - alpha lambda
        return Rates(alpha, 1 - params.flat.new_tensor(self.learning_rate * self.weight_decay))
