"""Gradient descent with momentum."""

from collections.abc import Mapping

import torch

from alfa.errors import ConfigError
from alfa.rules._base import Rule, register_rule
from alfa.types import Params, PositiveFloat, Rates, State


@register_rule("momentum")
class Momentum(Rule):
    """Gradient descent with momentum, as in `torch.optim.SGD`.

    At the first step, v = grad; later, v' = momentum v + (1 - dampening) grad. The direction is v,
    Polyak's heavy ball, or grad + momentum v with `nesterov`. The outer gradient flows through v.

    Args:
        layers: names and shapes of the adapted layers.
        learning_rate: alpha.
        momentum: the factor on v, above 0 and below 1.
        dampening: the part of the gradient that v leaves out, at least 0 and below 1.
        nesterov: look ahead along v; needs a dampening of 0.

    Examples:
        >>> import torch
        >>> from alfa import Params
        >>> from alfa.rules import Momentum
        >>> rule = Momentum({"w": torch.Size([2])}, momentum=0.5)
        >>> grads = Params.of({"w": torch.ones(1, 2)})
        >>> first = rule.rates(0, grads, grads)
        >>> rule.rates(1, grads, grads, first.state).direction["w"]
        tensor([[1.5000, 1.5000]])
    """

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        learning_rate: PositiveFloat = 0.01,
        momentum: float = 0.9,
        dampening: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(layers)
        if not learning_rate > 0:
            raise ConfigError(f"`learning_rate` must be greater than 0, got {learning_rate}.")
        if not 0 < momentum < 1:
            raise ConfigError(
                f"`momentum` must be greater than 0 and below 1, got {momentum}; without momentum, "
                "use the rule 'sgd'."
            )
        if not 0 <= dampening < 1:
            raise ConfigError(f"`dampening` must be at least 0 and below 1, got {dampening}.")
        if nesterov and dampening:
            raise ConfigError(
                f"`nesterov` needs a `dampening` of 0, got {dampening}; leave one of them out."
            )
        self.learning_rate, self.momentum = learning_rate, momentum
        self.dampening, self.nesterov = dampening, nesterov

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        v = grads.flat
        if state:
            (previous,) = state
            assert previous is not None
            v = self.momentum * previous + (1 - self.dampening) * grads.flat
        direction = grads.flat + self.momentum * v if self.nesterov else v
        alpha = params.flat.new_tensor(self.learning_rate)
        return Rates(alpha, params.flat.new_ones(()), grads.like(direction), state=(v,))
