"""The sources of rates, and rates from meta-learned tables."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import ConfigDict, Discriminator
from torch import Tensor, nn

from alfa.errors import AlfaWarning, ConfigError, check_choice
from alfa.ops import expand_to_parameters
from alfa.rules._base import Rule, register_rule
from alfa.types import Count, Layers, Params, PositiveFloat, Rates, State

BetaForm = Literal["decay", "factor"]

ALPHA_START = 0.01
# The published runs start with a weight decay of 0.0005 at a learning rate of 0.01.
DECAY_START = 0.0005 * 0.01

# An unknown key in a configuration is an error.
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Constant:
    """A rate, alpha or beta, that is never trained."""

    value: float
    source: Literal["constant"] = "constant"
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Learned:
    """A meta-learned table, the same for all tasks ("fixed" in Table 6).

    Args:
        start: the initial value of every entry; by default the rule's.
        per_step: learn a value for every inner step instead of one for all.
        per_layer: learn a value for every layer instead of one for all.

    Examples:
        >>> import torch
        >>> from alfa import Learned, LearnedRates
        >>> rule = LearnedRates({"w": torch.Size([2])}, num_steps=5, alpha=Learned(per_step=False))
        >>> rule.alpha0.values.shape
        torch.Size([1, 1])
    """

    start: float | None = None
    per_step: bool = True
    per_layer: bool = True
    source: Literal["learned"] = "learned"
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Generated:
    """Generator output times a meta-learned table (Eq. 7; "adaptive" in Table 6).

    Args:
        start: the initial value of every post-multiplier; by default the rule's.
        per_step: generate values at every inner step instead of once, at the first.
        per_layer: generate a value for every layer instead of one for all.

    Examples:
        >>> import torch
        >>> from alfa import ALFA, Generated
        >>> from alfa.rules import Constant
        >>> layers = {"w": torch.Size([2]), "b": torch.Size([1])}
        >>> rule = ALFA(layers, alpha=Generated(per_layer=False), beta=Constant(1.0))
        >>> rule.g_phi[-1].out_features
        1
    """

    start: float | None = None
    per_step: bool = True
    per_layer: bool = True
    source: Literal["generated"] = "generated"
    __pydantic_config__ = _STRICT


Rate = Annotated[Constant | Learned | Generated, Discriminator("source")]
FixedRate = Annotated[Constant | Learned, Discriminator("source")]


class Table(nn.Module):
    """Values of one hyperparameter per step and/or layer: a constant or a parameter.

    For a generated rate these are the post-multipliers of Eq. 7.
    """

    def __init__(self, rate: Rate, start: float, num_steps: int, num_layers: int) -> None:
        super().__init__()
        self.constant = rate.value if isinstance(rate, Constant) else None
        self.per_step = not isinstance(rate, Constant) and rate.per_step
        if not isinstance(rate, Constant):
            shape = num_steps if rate.per_step else 1, num_layers if rate.per_layer else 1
            value = float(start if rate.start is None else rate.start)
            self.values = nn.Parameter(torch.full(shape, value))

    def at(self, step: int, *, like: Tensor) -> Tensor:
        """Return the values of a step, which broadcast to ``[layer]``."""
        if self.constant is not None:
            return like.new_tensor(self.constant)
        # Steps beyond the number in training use the last row.
        row = self.values[min(step, self.values.shape[0] - 1)]
        # Under `no_grad`, a view of a parameter still requires a gradient.
        return row if torch.is_grad_enabled() else row.detach()


class WeightFactor(nn.Module):
    """Converts layer-wise values to beta, the factor on the weights in Eq. 4.

    A value is the amount of decay, beta = 1 - value (``"decay"``), or beta itself (``"factor"``).
    With `per_parameter`, a meta-learned decay of each weight multiplies the amount: the prior that
    a random init lacks (section 3.3).
    """

    def __init__(
        self, beta: Rate, form: BetaForm, layers: Layers, per_parameter: bool, decay_start: float
    ) -> None:
        super().__init__()
        check_choice("beta_form", form, ("decay", "factor"))
        if per_parameter and (form != "decay" or isinstance(beta, Constant)):
            raise ConfigError(
                "`per_parameter_decay` needs `beta_form` 'decay' and a learned or generated "
                f"`beta`, got {form!r} and {beta!r}; change them, or leave `per_parameter_decay` "
                "out (the preset 'paper' has the form 'factor')."
            )
        if not per_parameter and decay_start != DECAY_START:
            raise ConfigError(
                f"`decay_start` is {decay_start}, but has no effect without "
                "`per_parameter_decay`; set `per_parameter_decay` to true, or leave `decay_start` "
                "out."
            )
        self.form = "factor" if isinstance(beta, Constant) else form
        self.layers = layers
        start = torch.full((sum(layers.sizes),), float(decay_start))
        self.decay = nn.Parameter(start) if per_parameter else None

    def forward(self, values: Tensor) -> Tensor | Params:
        """Return beta for values that broadcast to ``[task, layer]``."""
        if self.form == "factor":
            return values
        if self.decay is None:
            return 1 - values
        beta = 1 - self.decay * expand_to_parameters(values, self.layers)
        return Params(torch.atleast_2d(beta), self.layers)


class TableRule(Rule):
    """A rule with tables of alpha and beta."""

    sources: ClassVar[tuple[type, ...]]

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        alpha: Rate,
        beta: Rate,
        num_steps: int,
        beta_form: BetaForm,
        per_parameter_decay: bool,
        decay_start: float,
    ) -> None:
        super().__init__(layers)
        for name, rate in (("alpha", alpha), ("beta", beta)):
            if not isinstance(rate, self.sources):
                kinds = [f"{s.__name__}({'value' if s is Constant else ''})" for s in self.sources]
                raise ConfigError(
                    f"`{name}` must be {' or '.join(kinds)} of alfa.rules, got {rate!r}."
                )
        if num_steps < 1:
            raise ConfigError(f"`num_steps` must be at least 1, got {num_steps}.")
        self.num_steps = num_steps
        self.has_fixed_layers = per_parameter_decay
        # Adaptation starts as plain weight decay.
        beta_start = 1.0 if beta_form == "factor" or per_parameter_decay else DECAY_START
        self.alpha0 = Table(alpha, ALPHA_START, num_steps, len(layers))
        self.beta0 = Table(beta, beta_start, num_steps, len(layers))
        self.weight_factor = WeightFactor(
            beta, beta_form, self.layers, per_parameter_decay, decay_start
        )

    def table_rates(
        self, step: int, params: Params, alpha1: Tensor | None = None, beta1: Tensor | None = None
    ) -> tuple[Tensor, Tensor | Params]:
        """Return alpha and beta from the tables, times any generated values (Eq. 7)."""
        has_steps = self.alpha0.per_step or self.beta0.per_step
        if has_steps and step >= self.num_steps and self._warns_of_extra_steps:
            self._warns_of_extra_steps = False  # once
            warnings.warn(
                f"inner step {step + 1} is beyond the {self.num_steps} steps of the rule "
                f"{type(self).__name__}, which reuses the values of its last step.",
                AlfaWarning,
                stacklevel=3,
            )
        alpha, beta = (table.at(step, like=params.flat) for table in (self.alpha0, self.beta0))
        alpha = alpha if alpha1 is None else alpha * alpha1
        beta = beta if beta1 is None else beta * beta1
        return alpha, self.weight_factor(beta)


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
        decay_start: the initial value of the decay of each weight.

    Examples:
        >>> import torch
        >>> from alfa import LearnedRates
        >>> rule = LearnedRates({"w": torch.Size([2])}, num_steps=5)
        >>> sum(p.numel() for p in rule.parameters())  # alpha and beta, 5 steps, 1 layer
        10
    """

    sources = (Constant, Learned)

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
        super().__init__(
            layers, alpha, beta, num_steps, beta_form, per_parameter_decay, decay_start
        )

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        return Rates(*self.table_rates(step, params))
