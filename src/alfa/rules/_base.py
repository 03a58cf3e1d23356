"""What an update rule is."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Mapping

import torch
from torch import nn

from alfa.errors import AlfaWarning
from alfa.registry import Registry
from alfa.types import Layers, Memory, Params, Rates


class Rule(nn.Module, abc.ABC):
    """Chooses the rates of every inner step; its parameters are meta-learned.

    A rule is pure: tensors in, tensors out, tasks independent of each other. It never
    applies its rates (`alfa.ops.apply_rates` does, for all of them).

    To add one, subclass, implement `rates`, and decorate the class with
    ``@register_rule("my-rule")``. Its constructor takes the layers first, then
    keyword-only options; ``num_steps`` and ``generator`` are filled in where it has them.
    `alfa.testing.check_rule` runs the contract that every rule of the package passes.

    Args:
        layers: names and shapes of the adapted layers, in order.
    """

    def __init__(self, layers: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self.layers = Layers(layers)
        self._said_beyond = False

    def expect_more_steps(self) -> None:
        """Say nothing of steps beyond those of training, as they are wanted."""
        self._said_beyond = True

    def note_step(self, step: int, num_steps: int) -> None:
        """Say once that a step is beyond those that a rule with a table per step knows."""
        if step >= num_steps and not self._said_beyond:
            self._said_beyond = True
            warnings.warn(
                f"inner step {step + 1} is beyond the {num_steps} steps that the rule "
                f"{type(self).__name__} was made for: from there on it uses the values of its "
                "last step.",
                AlfaWarning,
                stacklevel=3,
            )

    @abc.abstractmethod
    def rates(self, step: int, params: Params, grads: Params, memory: Memory = ()) -> Rates:
        """The rates of inner step `step` (0 is the first).

        Args:
            step: may reach beyond the number of steps in training.
            params: theta_{i,j} of every task, ``[task, ...]`` by layer.
            grads: the gradient of each task's support loss there, of the same shapes.
            memory: the `memory` that this rule returned with the step before; empty at first.
        """


RULES: Registry[Rule] = Registry("rule")
register_rule = RULES.register
