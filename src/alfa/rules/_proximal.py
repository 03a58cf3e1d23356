"""Gradient descent with a proximal term."""

from collections.abc import Mapping

import torch

from alfa.errors import ConfigError
from alfa.rules._base import Rule, register_rule
from alfa.types import NonNegativeFloat, Params, PositiveFloat, Rates, State


@register_rule("proximal")
class Proximal(Rule):
    """Gradient descent on the support loss plus lambda / 2 |phi - theta|^2 (iMAML).

    The direction is the gradient at phi plus lambda (phi - theta), where theta are the weights at
    the first step (Rajeswaran et al., 2019, Eq. 3).

    Args:
        layers: names and shapes of the adapted layers.
        learning_rate: alpha.
        strength: lambda, the strength of the regularization.

    Examples:
        >>> import torch
        >>> from alfa import Params
        >>> from alfa.rules import Proximal
        >>> rule = Proximal({"w": torch.Size([1])}, strength=2.0)
        >>> theta, phi = (Params.of({"w": torch.tensor([[w]])}) for w in (1.0, 4.0))
        >>> zero = theta.like(torch.zeros(1, 1))
        >>> state = rule.rates(0, theta, zero).state
        >>> rule.rates(1, phi, zero, state).direction["w"]  # 2 (4 - 1)
        tensor([[6.]])
    """

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        learning_rate: PositiveFloat = 0.01,
        strength: NonNegativeFloat = 2.0,
    ) -> None:
        super().__init__(layers)
        if not learning_rate > 0 or not strength >= 0:
            raise ConfigError(
                "`learning_rate` must be greater than 0 and `strength` at least 0, got "
                f"{learning_rate} and {strength}."
            )
        self.learning_rate, self.strength = learning_rate, strength

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        phi = params.flat
        theta = state[0] if state else phi
        assert theta is not None
        direction = grads.flat + self.strength * (phi - theta)  # g + lambda (phi - theta)
        alpha, beta = phi.new_tensor(self.learning_rate), phi.new_ones(())
        return Rates(alpha, beta, direction=grads.like(direction), state=(theta,))
