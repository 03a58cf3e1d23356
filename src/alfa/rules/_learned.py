"""Meta-learned rates that are the same for every task."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alfa.rules._base import register_rule
from alfa.rules._rates import (
    DECAY_START,
    BetaForm,
    Constant,
    FixedRate,
    Learned,
    TableRule,
    check_rates,
)
from alfa.types import Count, Params, PositiveFloat, Rates, State


@register_rule("learned")
class LearnedRates(TableRule):
    """Rates from meta-learned tables, per step and/or per layer ("fixed" in Table 6).

    Args:
        layers: names and shapes of the adapted layers.
        num_steps: inner steps in training; later steps use the rates of the last one.
        alpha: `Learned` or `Constant`.
        beta: `Learned` or `Constant`.
        beta_form: beta from a learned value, ``"decay"``: 1 - value, or ``"factor"``: value.
        per_parameter_decay: multiply the decay by a meta-learned decay of each weight.
        decay_start: the initial value of that decay.

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
        check_rates(Constant, Learned, alpha=alpha, beta=beta)
        super().__init__(
            layers,
            alpha,
            beta,
            num_steps=num_steps,
            beta_form=beta_form,
            per_parameter_decay=per_parameter_decay,
            decay_start=decay_start,
        )

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(*self.table_rates(step, params))
