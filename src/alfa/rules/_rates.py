"""The sources of a hyperparameter: a constant, a learned table, or the generator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Discriminator
from torch import Tensor, nn

from alfa.errors import AlfaWarning, ConfigError, check_choice
from alfa.ops import expand_to_parameters
from alfa.rules._base import Rule
from alfa.types import Count, Layers, Params

BetaForm = Literal["decay", "factor"]

# In a configuration, an unknown key is an error.
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

ALPHA_START = 0.01
# The published runs start from a weight decay of 0.0005 at a learning rate of 0.01.
DECAY_START = 0.0005 * 0.01


@dataclass(frozen=True)
class Constant:
    """The rate itself, never trained.

    Args:
        value: alpha or beta.

    Example:
        >>> from alfa.rules import Constant
        >>> Constant(0.01).value
        0.01
    """

    value: float
    source: Literal["constant"] = "constant"
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Learned:
    """A meta-learned table, the same for all tasks ("fixed" in Table 6).

    Args:
        start: the initial value of every entry; by default that of the rule.
        per_step: a value for every inner step, or one for all.
        per_layer: a value for every layer, or one for all.

    Example:
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
        start: the initial value of every post-multiplier; by default that of the rule.
        per_step: generated at every inner step, or once, at the first, for all.
        per_layer: a value for every layer, or one for all.

    Example:
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


def check_rates(*kinds: type, **rates: object) -> None:
    """Raise ConfigError unless every rate is of one of these kinds."""
    for name, rate in rates.items():
        if not isinstance(rate, kinds):
            words = [f"{kind.__name__}({'value' if kind is Constant else ''})" for kind in kinds]
            raise ConfigError(f"`{name}` must be {' or '.join(words)} of alfa.rules, got {rate!r}.")


class Table(nn.Module):
    """The values of one hyperparameter per step and/or layer, constant or meta-learned.

    For a generated rate these are the post-multipliers of Eq. 7. `start` is the default for
    `rate.start`.
    """

    def __init__(self, rate: Rate, *, start: float, num_steps: Count, num_layers: int) -> None:
        super().__init__()
        if num_steps < 1:
            raise ConfigError(f"`num_steps` must be at least 1, got {num_steps}.")
        self.constant: float | None = None
        self.per_step = not isinstance(rate, Constant) and rate.per_step
        if isinstance(rate, Constant):
            self.constant = rate.value
            return
        rows = num_steps if rate.per_step else 1
        columns = num_layers if rate.per_layer else 1
        value = float(start if rate.start is None else rate.start)
        self.values = nn.Parameter(torch.full((rows, columns), value))

    def at(self, step: int, *, like: Tensor) -> Tensor:
        """The row of a step, which broadcasts to ``[layer]``; a constant takes `like`'s dtype."""
        if self.constant is not None:
            return like.new_tensor(self.constant)
        # With more steps than in training, the last row is used.
        row = self.values[min(step, self.values.shape[0] - 1)]
        # A view of a parameter requires a gradient even if none is recorded.
        return row if torch.is_grad_enabled() else row.detach()


class WeightFactor(nn.Module):
    """Turns layer-wise values into beta, the factor on the weights in Eq. 4.

    With the form ``"decay"`` a value is the amount of decay, beta = 1 - value; with ``"factor"``
    it is beta itself, and so is a constant. With `per_parameter`, the amount is multiplied by a
    meta-learned decay of each single weight, which gives a random init the prior it lacks
    (section 3.3).
    """

    def __init__(
        self, beta: Rate, form: BetaForm, layers: Layers, *, per_parameter: bool, decay_start: float
    ) -> None:
        super().__init__()
        check_choice("beta_form", form, ("decay", "factor"))
        if per_parameter and (form != "decay" or isinstance(beta, Constant)):
            raise ConfigError(
                "`per_parameter_decay` needs `beta_form` 'decay' and a `beta` that is learned or "
                f"generated, but got {form!r} and {beta!r}; change those or leave it out (the "
                "preset 'paper' has the form 'factor')."
            )
        if not per_parameter and decay_start != DECAY_START:
            raise ConfigError(
                f"`decay_start` is {decay_start}, but has no effect without "
                "`per_parameter_decay`; set that to true, or leave `decay_start` out."
            )
        self.form = "factor" if isinstance(beta, Constant) else form
        self.layers = layers
        self.decay = (
            nn.Parameter(torch.full((sum(layers.sizes),), float(decay_start)))
            if per_parameter
            else None
        )

    def forward(self, values: Tensor, layers: Layers) -> Tensor | Params:
        """Beta from values that broadcast to ``[task, layer]``; tasks may have other layers."""
        if self.form == "factor":
            return values
        if self.decay is None:
            return 1 - values
        if layers != self.layers:
            changed = [name for name in layers if layers[name] != self.layers[name]]
            raise ConfigError(
                "`per_parameter_decay` has a decay for each weight of the model, but these tasks "
                f"have other shapes of {', '.join(changed)}; leave it out if the number of classes "
                "differs."
            )
        beta = 1 - self.decay * expand_to_parameters(values, self.layers)
        return Params(torch.atleast_2d(beta), self.layers)


class TableRule(Rule):
    """A rule with tables of alpha and beta."""

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        alpha: Rate,
        beta: Rate,
        *,
        num_steps: Count,
        beta_form: BetaForm,
        per_parameter_decay: bool,
        decay_start: float,
    ) -> None:
        super().__init__(layers)
        self.num_steps = num_steps
        self.per_parameter_decay = per_parameter_decay
        # Adaptation starts as plain weight decay.
        beta_start = 1.0 if beta_form == "factor" or per_parameter_decay else DECAY_START
        size = {"num_steps": num_steps, "num_layers": len(layers)}
        self.alpha0 = Table(alpha, start=ALPHA_START, **size)
        self.beta0 = Table(beta, start=beta_start, **size)
        self.weight_factor = WeightFactor(
            beta,
            beta_form,
            self.layers,
            per_parameter=per_parameter_decay,
            decay_start=decay_start,
        )

    def table_rates(
        self, step: int, params: Params, alpha1: Tensor | None = None, beta1: Tensor | None = None
    ) -> tuple[Tensor, Tensor | Params]:
        """Alpha and beta from the tables, times the generated values if there are any (Eq. 7)."""
        has_steps = self.alpha0.per_step or self.beta0.per_step
        if has_steps and step >= self.num_steps and self._warns_of_extra_steps:
            self._warns_of_extra_steps = False  # once
            warnings.warn(
                f"inner step {step + 1} is beyond the {self.num_steps} steps of the rule "
                f"{type(self).__name__}, which uses the values of its last step from there on.",
                AlfaWarning,
                stacklevel=3,
            )
        alpha, beta = (table.at(step, like=params.flat) for table in (self.alpha0, self.beta0))
        alpha = alpha if alpha1 is None else alpha * alpha1
        beta = beta if beta1 is None else beta * beta1
        return alpha, self.weight_factor(beta, params.layers)
