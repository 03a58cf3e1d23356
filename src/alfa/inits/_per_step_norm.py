"""Normalization parameters for every inner step."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.inits._base import Init, Support, register_init
from alfa.inits._inits import _NORMS
from alfa.types import Count, Layers, Params


@register_init("per-step-norm")
class PerStepNorm(Init):
    """Another init with gamma and beta of each normalization layer for every inner step.

    Inner step s, and queries after it, use gamma + gamma_s and beta + beta_s (Antoniou et al.,
    2019, MAML++: per-step batch normalization weights and biases). The outer loop trains gamma_s
    and beta_s, which start at 0, instead of the model's gamma and beta. Steps beyond those of the
    training use the values of the last one.

    Args:
        init: the init that supplies the other parameters.
        num_steps: number of inner steps in training.

    Examples:
        >>> from alfa import Conv4, LearnedInit
        >>> from alfa.inits import PerStepNorm
        >>> init = PerStepNorm(LearnedInit(Conv4((3, 16, 16), 5, filters=8)), num_steps=5)
        >>> sum(p.numel() for p in init.per_step)  # 5 steps, 4 layers with 8 gammas and 8 betas
        320

    Raises:
        ConfigError: the model has no normalization parameters outside the inner loop.
    """

    has_step_parameters = True

    def __init__(self, init: Init, *, num_steps: Count = 5) -> None:
        super().__init__()
        if num_steps < 1:
            raise ConfigError(
                f"`num_steps` must be at least 1, got {num_steps}; an init with parameters for "
                "every inner step needs inner steps."
            )
        self.init, self.num_steps = init, num_steps
        norms = [module for module in init.modules() if isinstance(module, _NORMS)]
        # A fixed init returns detached parameters, which share their memory with the model's.
        addresses = {
            parameter.data_ptr()
            for norm in norms
            for parameter in norm.parameters(recurse=False)
            if parameter.requires_grad
        }
        shared = init.shared()
        self.names = [name for name, p in shared.items() if p.data_ptr() in addresses]
        if not self.names:
            raise ConfigError(
                "the init 'per-step-norm' needs normalization layers whose trained parameters the "
                "inner loop does not adapt, but this model has none; use its base init, or leave "
                "the normalization layers out of `adapt`."
            )
        # One parameter for each step, so that weight decay, which spares vectors, spares these.
        self.per_step = nn.ParameterList(
            torch.zeros_like(shared[name]) for _ in range(num_steps) for name in self.names
        )
        self.classification_only, self.variable_way = init.classification_only, init.variable_way

    @property
    def layers(self) -> Layers:
        return self.init.layers

    def start(self, support: Support) -> Params:
        return self.init.start(support)

    def shared(self) -> dict[str, Tensor]:
        return self.shared_at(0)

    def shared_at(self, step: int) -> dict[str, Tensor]:
        shared = self.init.shared_at(step)
        first = min(step, self.num_steps - 1) * len(self.names)
        for index, name in enumerate(self.names):
            shared[name] = shared[name].detach() + self.per_step[first + index]
        return shared

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        shared = self.init.shared()
        replaced = {id(shared[name]) for name in self.names}
        yield from (p for p in self.init.meta_parameters() if id(p) not in replaced)
        yield from self.per_step
