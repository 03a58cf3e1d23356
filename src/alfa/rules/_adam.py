"""Adam in the inner loop."""

from collections.abc import Mapping

import torch

from alfa.errors import ConfigError
from alfa.rules._base import Rule, register_rule
from alfa.types import NonNegativeFloat, Params, PositiveFloat, Rates, State


@register_rule("adam")
class InnerAdam(Rule):
    """Adam (Kingma and Ba, 2015, Algorithm 1), with moments that start at zero in every task.

    With g the gradient at step t = 1, 2, ...: m = beta1 m + (1 - beta1) g,
    v = beta2 v + (1 - beta2) g^2, and the direction is m^ / (sqrt(v^) + eps), where
    m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t). Reptile has beta1 = 0.

    Args:
        layers: names and shapes of the adapted layers.
        learning_rate: alpha.
        beta1: decay of the mean of the gradients.
        beta2: decay of the mean of the squared gradients.
        eps: added to the denominator.

    Examples:
        >>> import torch
        >>> from alfa import Params
        >>> from alfa.rules import InnerAdam
        >>> theta = Params.of({"w": torch.tensor([[2.0, -3.0]])})
        >>> InnerAdam(theta.layers).rates(0, theta, theta).direction["w"]  # the sign of g
        tensor([[ 1., -1.]])
    """

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        learning_rate: PositiveFloat = 0.001,
        beta1: NonNegativeFloat = 0.9,
        beta2: NonNegativeFloat = 0.999,
        eps: PositiveFloat = 1e-8,
    ) -> None:
        super().__init__(layers)
        if not learning_rate > 0 or not eps > 0:
            raise ConfigError(
                f"`learning_rate` and `eps` must be greater than 0, got {learning_rate} and {eps}."
            )
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise ConfigError(
                f"`beta1` and `beta2` must be at least 0 and below 1, got {beta1} and {beta2}."
            )
        self.learning_rate, self.eps = learning_rate, eps
        self.beta1, self.beta2 = beta1, beta2

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        g, (m, v) = grads.flat, state or (None, None)
        m = (1 - self.beta1) * g if m is None else self.beta1 * m + (1 - self.beta1) * g
        square = (1 - self.beta2) * g.square()
        v = square if v is None else self.beta2 * v + square
        t = step + 1
        # The square root has no derivative at 0.
        v_hat = (v / (1 - self.beta2**t)).clamp_min(torch.finfo(v.dtype).tiny)
        direction = m / (1 - self.beta1**t) / (v_hat.sqrt() + self.eps)
        alpha, beta = g.new_tensor(self.learning_rate), g.new_ones(())
        return Rates(alpha, beta, direction=grads.like(direction), state=(m, v))
