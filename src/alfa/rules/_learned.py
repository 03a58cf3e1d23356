"""Meta-learned rates that are the same for every task."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alfa.rules._base import Rule, register_rule
from alfa.rules._rates import (
    ALPHA_START,
    DECAY_START,
    BetaForm,
    Constant,
    FixedRate,
    Learned,
    Table,
    WeightFactor,
    beta_start,
    check_rates,
)
from alfa.types import Count, Memory, Params, PositiveFloat, Rates


@register_rule("learned")
class LearnedRates(Rule):
    """Rates from meta-learned tables, per step and/or per layer ("fixed" in Table 6).

    Args:
        layers: names and shapes of the adapted layers.
        num_steps: inner steps in training; later steps use the last one's rates.
        alpha: `Learned` or `Constant`.
        beta: `Learned` or `Constant`.
        beta_form: how a learned beta is read, ``"decay"`` (1 - value) or ``"factor"``.
        per_parameter_decay: multiplies the decay by a meta-learned one of each weight.
        decay_start: where each weight's own decay starts, with `per_parameter_decay`.

    Example:
        >>> import torch
        >>> from alfa import LearnedRates
        >>> rule = LearnedRates({"w": torch.Size([2])}, num_steps=5)
        >>> sum(p.numel() for p in rule.parameters())  # alpha and beta, 5 steps, 1 layer
        10
    """

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        num_steps: Count = 5,
        alpha: FixedRate = Learned(),  # noqa: B008 - frozen
        beta: FixedRate = Learned(),  # noqa: B008 - frozen
        beta_form: BetaForm = "decay",
        per_parameter_decay: bool = False,
        decay_start: PositiveFloat = DECAY_START,
    ) -> None:
        super().__init__(layers)
        self.num_steps = num_steps
        check_rates(Constant, Learned, alpha=alpha, beta=beta)
        size = {"num_steps": num_steps, "num_layers": len(layers)}
        start = beta_start(beta_form, per_parameter=per_parameter_decay)
        self.alpha0 = Table(alpha, start=ALPHA_START, **size)
        self.beta0 = Table(beta, start=start, **size)
        self.weight_factor = WeightFactor(
            beta,
            beta_form,
            per_parameter=per_parameter_decay,
            decay_start=decay_start,
            layers=self.layers,
        )

    def rates(self, step: int, params: Params, grads: Params, memory: Memory = ()) -> Rates:
        if self.alpha0.per_step or self.beta0.per_step:
            self.note_step(step, self.num_steps)
        like = params.flat
        return Rates(
            alpha=self.alpha0.at(step, like=like),
            beta=self.weight_factor(self.beta0.at(step, like=like), params.layers),
        )
