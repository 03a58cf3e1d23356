"""Optimizers that a configuration names."""

from __future__ import annotations

import abc
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.optim._adam import Adam
from alfa.registry import Registry
from alfa.types import NonNegativeFloat, PositiveFloat


class OptimizerFactory(abc.ABC):
    """Makes an optimizer from the options of a configuration.

    Attributes:
        weight_decay: the decay of the weights that the outer loop decays.
    """

    weight_decay: float = 0.0

    @abc.abstractmethod
    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimizer of these parameter groups."""

    def __call__(
        self, parameters: Sequence[nn.Parameter], *, decayed: Collection[nn.Parameter] = ()
    ) -> torch.optim.Optimizer:
        """The optimizer of all `parameters`; only those in `decayed` have weight decay."""
        groups: list[dict[str, Any]] = [{"params": list(parameters), "weight_decay": 0.0}]
        if self.weight_decay:
            chosen = {id(parameter) for parameter in decayed}
            groups = [
                {
                    "params": [p for p in parameters if (id(p) in chosen) == is_decayed],
                    "weight_decay": self.weight_decay if is_decayed else 0.0,
                }
                for is_decayed in (True, False)
            ]
        return self.make([group for group in groups if group["params"]])


OPTIMIZERS: Registry[OptimizerFactory] = Registry("optimizer")
register_optimizer = OPTIMIZERS.register


@register_optimizer("adam")
class AdamFactory(OptimizerFactory):
    """Adam; weight decay is added to the gradient (an l2 term).

    Args:
        learning_rate: the step size before the schedule.
        weight_decay: the coefficient of the l2 term on the init's matrices and convolutions.
        beta1: decay of the running mean of gradients.
        beta2: decay of the running mean of squared gradients.
        eps: added to the denominator.
    """

    def __init__(
        self,
        *,
        learning_rate: PositiveFloat = 0.001,
        weight_decay: NonNegativeFloat = 0.0,
        beta1: NonNegativeFloat = 0.9,
        beta2: NonNegativeFloat = 0.999,
        eps: PositiveFloat = 1e-8,
    ) -> None:
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.betas, self.eps = (beta1, beta2), eps

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return Adam(groups, lr=self.learning_rate, betas=self.betas, eps=self.eps, fused=True)


@register_optimizer("adamw")
class AdamWFactory(AdamFactory):
    """AdamW; weight decay shrinks the weights directly (Loshchilov and Hutter, 2019).

    Args:
        learning_rate: the step size before the schedule.
        weight_decay: the decay of the init's matrices and convolutions.
        beta1: decay of the running mean of gradients.
        beta2: decay of the running mean of squared gradients.
        eps: added to the denominator.
    """

    def __init__(
        self,
        *,
        learning_rate: PositiveFloat = 0.001,
        weight_decay: NonNegativeFloat = 0.01,
        beta1: NonNegativeFloat = 0.9,
        beta2: NonNegativeFloat = 0.999,
        eps: PositiveFloat = 1e-8,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
        )

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            groups, lr=self.learning_rate, betas=self.betas, eps=self.eps, fused=True
        )


@register_optimizer("sgd")
class SGDFactory(OptimizerFactory):
    """Stochastic gradient descent.

    Args:
        learning_rate: the step size before the schedule.
        weight_decay: the coefficient of the l2 term on the init's matrices and convolutions.
        momentum: the fraction of the previous step that is added to this one.
        nesterov: look ahead along the momentum.
    """

    def __init__(
        self,
        *,
        learning_rate: PositiveFloat = 0.1,
        weight_decay: NonNegativeFloat = 0.0,
        momentum: NonNegativeFloat = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.momentum, self.nesterov = momentum, nesterov

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            groups, lr=self.learning_rate, momentum=self.momentum, nesterov=self.nesterov
        )


@register_optimizer("custom")
class CustomOptimizer(OptimizerFactory):
    """An optimizer that a program passed to `alfa.Trainer`; only that program can make it.

    Args:
        description: the class of the optimizer.
    """

    def __init__(self, *, description: str = "") -> None:
        self.description = description

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        raise ConfigError(
            f"this run was trained with an optimizer from a program ({self.description}), which a "
            "configuration cannot rebuild; resume it in that program with Trainer.fit."
        )
