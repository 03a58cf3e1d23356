"""The base class of the update rules."""

import abc
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.registry import Registry
from alfa.types import Layers, Params, Rates, State


class Rule(nn.Module, abc.ABC):
    """Chooses the rates of every inner step; its parameters are meta-learned.

    A rule is a pure function of tensors that treats tasks independently. It does not apply its
    rates; `alfa.ops.apply_rates` does.

    To add a rule, subclass, implement `rates`, and decorate the class with
    ``@register_rule("my-rule")``. The constructor takes the layers first, then keyword-only
    options; alfa supplies ``num_steps`` and ``generator`` if the constructor takes them. A class
    attribute ``presets`` may map the names of presets to options. `alfa.testing.check_rule` checks
    the contract of every rule.

    Args:
        layers: names and shapes of the adapted layers, in order.

    Attributes:
        uses_losses: `rates` has the keyword argument ``losses``, the support loss of each task at
            `params`, ``[task]``, a constant.
        has_fixed_layers: the rule has values for each weight, so the layers of every task need the
            shapes of the model's.

    Examples:
        >>> import torch
        >>> from alfa import Params, Rates, Rule
        >>> class Halving(Rule):
        ...     def rates(self, step, params, grads, state=()):
        ...         one = params.flat.new_ones(())
        ...         return Rates(alpha=0.1 * one / 2**step, beta=one)
        >>> theta = Params.of({"w": torch.ones(4, 3)})
        >>> Halving(theta.layers).rates(1, theta, theta).alpha
        tensor(0.0500)
    """

    uses_losses: bool = False
    has_fixed_layers: bool = False

    def __init__(self, layers: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self.layers = Layers(layers)
        self._warns_of_extra_steps = True

    def allow_extra_steps(self) -> None:
        """Disable the warning about more steps than in training."""
        self._warns_of_extra_steps = False

    @abc.abstractmethod
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        """Return the rates of inner step `step`.

        Args:
            step: 0 for the first step; may exceed the number of steps in training.
            params: theta_{i,j} of every task, ``[task, ...]`` by layer.
            grads: the gradient of each task's support loss at `params`, of the same shapes.
            state: the `state` that the rule returned at the previous step; empty at the first.
        """

    def forward(
        self, step: int, params: Params, grads: Params, state: State = (), *, losses: Tensor
    ) -> Rates:
        """Return `rates`, and pass the support losses to a rule that uses them."""
        if self.has_fixed_layers and params.layers != self.layers:
            changed = [name for name in params if params.layers[name] != self.layers[name]]
            raise ConfigError(
                f"the rule {type(self).__name__} has values for each weight of the model, but "
                f"these tasks have other shapes of {', '.join(changed)}; if the number of classes "
                "differs, use another rule (with learned or generated rates, leave out "
                "`per_parameter_decay`)."
            )
        given: dict[str, Any] = {"losses": losses} if self.uses_losses else {}
        return self.rates(step, params, grads, state, **given)


RULES: Registry[Rule] = Registry("rule", context=("num_steps", "generator"))
register_rule = RULES.register
