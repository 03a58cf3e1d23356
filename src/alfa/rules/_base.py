"""What an update rule is."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import torch
from torch import nn

from alfa.registry import Registry
from alfa.types import Layers, Params, Rates, State


class Rule(nn.Module, abc.ABC):
    """Chooses the rates of every inner step; its parameters are meta-learned.

    A rule is pure: tensors in, tensors out, tasks independent of each other. It does not
    apply its rates; `alfa.ops.apply_rates` does.

    To add one, subclass, implement `rates`, and decorate the class with
    ``@register_rule("my-rule")``. Its constructor takes the layers first, then
    keyword-only options; ``num_steps`` and ``generator`` are filled in if they are among them.
    `alfa.testing.check_rule` checks the contract of every rule. A class attribute ``presets`` may
    map the names of presets to options.

    Args:
        layers: names and shapes of the adapted layers, in order.

    Example:
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

    def __init__(self, layers: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self.layers = Layers(layers)
        self._warns_of_extra_steps = True

    def allow_extra_steps(self) -> None:
        """Disable the warning about more steps than in training."""
        self._warns_of_extra_steps = False

    @abc.abstractmethod
    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        """The rates of inner step `step` (0 is the first).

        Args:
            step: may exceed the number of steps in training.
            params: theta_{i,j} of every task, ``[task, ...]`` by layer.
            grads: the gradient of each task's support loss there, of the same shapes.
            state: the `state` that the rule returned at the previous step; empty at the first.
        """


RULES: Registry[Rule] = Registry("rule", context=("num_steps", "generator"))
register_rule = RULES.register
