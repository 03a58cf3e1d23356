"""Optimizers that a configuration names."""

import abc
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from alfa.errors import ConfigError
from alfa.registry import Registry
from alfa.types import NonNegativeFloat, PositiveFloat


class Adam(torch.optim.Adam):
    """torch's Adam, bit for bit, without the decorators that import torch's compiler.

    The import of the compiler takes nearly as long as the import of torch.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class OptimizerFactory(abc.ABC):
    """A factory of optimizers with the options of a configuration.

    Attributes:
        weight_decay: the decay of the parameters that are decayed.
    """

    weight_decay: float = 0.0

    @abc.abstractmethod
    def make(self, groups: list[dict[str, Any]]) -> Optimizer:
        """Make the optimizer of these parameter groups."""

    def __call__(
        self, parameters: Sequence[nn.Parameter], *, decayed: Collection[nn.Parameter] = ()
    ) -> Optimizer:
        """Make the optimizer of all `parameters`, with weight decay for those in `decayed`."""
        if not self.weight_decay:
            return self.make([{"params": list(parameters), "weight_decay": 0.0}])
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
@dataclass(kw_only=True)
class AdamFactory(OptimizerFactory):
    """Adam; weight decay is added to the gradient (an l2 term).

    Args:
        learning_rate: the step size before the schedule.
        weight_decay: the coefficient of the l2 term on the init's matrices and convolutions.
        beta1: decay of the running mean of gradients.
        beta2: decay of the running mean of squared gradients.
        eps: added to the denominator.
    """

    learning_rate: PositiveFloat = 0.001
    weight_decay: NonNegativeFloat = 0.0
    beta1: NonNegativeFloat = 0.9
    beta2: NonNegativeFloat = 0.999
    eps: PositiveFloat = 1e-8
    optimizer: ClassVar[Callable[..., Optimizer]] = Adam

    def make(self, groups: list[dict[str, Any]]) -> Optimizer:
        betas = self.beta1, self.beta2
        return self.optimizer(groups, lr=self.learning_rate, betas=betas, eps=self.eps, fused=True)


@register_optimizer("adamw")
@dataclass(kw_only=True)
class AdamWFactory(AdamFactory):
    """AdamW; weight decay shrinks the weights directly (Loshchilov and Hutter, 2019).

    Args:
        weight_decay: the decay of the init's matrices and convolutions.
    """

    weight_decay: NonNegativeFloat = 0.01
    optimizer = torch.optim.AdamW


@register_optimizer("sgd")
@dataclass(kw_only=True)
class SGDFactory(OptimizerFactory):
    """Stochastic gradient descent.

    Args:
        learning_rate: the step size before the schedule.
        weight_decay: the coefficient of the l2 term on the init's matrices and convolutions.
        momentum: the fraction of the previous step that is added to this one.
        nesterov: look ahead along the momentum.
    """

    learning_rate: PositiveFloat = 0.1
    weight_decay: NonNegativeFloat = 0.0
    momentum: NonNegativeFloat = 0.0
    nesterov: bool = False

    def make(self, groups: list[dict[str, Any]]) -> Optimizer:
        return torch.optim.SGD(
            groups, lr=self.learning_rate, momentum=self.momentum, nesterov=self.nesterov
        )


@register_optimizer("custom")
@dataclass(kw_only=True)
class CustomOptimizer(OptimizerFactory):
    """An optimizer that a program passed to `alfa.Trainer`; only that program can make it.

    Args:
        description: the class of the optimizer.
    """

    description: str = ""

    def make(self, groups: list[dict[str, Any]]) -> Optimizer:
        raise ConfigError(
            f"a program trained this run with its own optimizer ({self.description}), which a "
            "configuration cannot rebuild; resume the run in that program with Trainer.fit."
        )
