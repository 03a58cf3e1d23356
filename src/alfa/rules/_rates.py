"""Where one hyperparameter comes from: a constant, a learned table, or the generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Discriminator
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.ops import spread
from alfa.types import Count, Layers, Params

BetaForm = Literal["decay", "factor"]

# In a configuration, a misspelt key is an error.
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

ALPHA_START = 0.01
# The published runs start from a weight decay of 0.0005 at a learning rate of 0.01.
DECAY_START = 0.0005 * 0.01


def beta_start(form: BetaForm, *, per_parameter: bool) -> float:
    """Where a table of beta starts, so that adaptation begins as plain weight decay."""
    return 1.0 if form == "factor" or per_parameter else DECAY_START


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
        start: the value that every entry starts from; by default the rule's own.
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
        start: the value that every post-multiplier starts from; by default the rule's own.
        per_step: generated anew at every inner step, or once, at the first, for all.
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
    """Raise unless every rate is of one of these kinds.

    Raises:
        ConfigError: names the first that is not.
    """
    for name, rate in rates.items():
        if not isinstance(rate, kinds):
            words = [f"{kind.__name__}({'value' if kind is Constant else ''})" for kind in kinds]
            raise ConfigError(
                f"`{name}` is {rate!r}, but must say where the rate comes from: "
                f"{' or '.join(words)} of alfa.rules."
            )


class Table(nn.Module):
    """The values of one hyperparameter per step and/or layer, constant or meta-learned.

    For a generated rate these are the post-multipliers of Eq. 7.

    Args:
        rate: says whether the table is trained, and which dimensions it has.
        start: the value of every entry where `rate` names none.
        num_steps: rows, if there is one per step.
        num_layers: columns, if there is one per layer.
    """

    def __init__(self, rate: Rate, *, start: float, num_steps: Count, num_layers: int) -> None:
        super().__init__()
        if num_steps < 1:
            raise ConfigError(f"`num_steps` is {num_steps}, but must be at least 1.")
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
        # More steps than in training: the last row serves.
        row = self.values[min(step, self.values.shape[0] - 1)]
        # A view of a parameter would claim to need a gradient even where none is recorded.
        return row if torch.is_grad_enabled() else row.detach()


class WeightFactor(nn.Module):
    """Turns layer-wise values into beta, the factor on the weights in Eq. 4.

    ``"decay"`` reads a value as the amount of decay, beta = 1 - value, and ``"factor"`` as
    beta itself, which is also how a constant is read. With `per_parameter`, the amount is
    multiplied by a meta-learned decay of each single weight, which gives a random init the
    prior it lacks (section 3.3).

    Args:
        beta: where the values come from.
        form: ``"decay"`` or ``"factor"``.
        per_parameter: has a decay of its own for every weight; needs ``"decay"``.
        decay_start: where each weight's own decay starts.
        layers: names and shapes of the adapted layers.
    """

    def __init__(
        self,
        beta: Rate,
        form: BetaForm,
        *,
        per_parameter: bool,
        decay_start: float,
        layers: Layers,
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
                f"`decay_start` is {decay_start}, but without `per_parameter_decay` there is no "
                "decay that starts there; set that to true, or leave `decay_start` out."
            )
        self.form = "factor" if isinstance(beta, Constant) else form
        self.layers = layers
        self.decay = (
            nn.Parameter(torch.full((sum(layers.sizes),), float(decay_start)))
            if per_parameter
            else None
        )

    def forward(self, values: Tensor, layers: Layers) -> Tensor | Params:
        """Beta from values that broadcast to ``[task, layer]``, for the layers at hand.

        Raises:
            ConfigError: there is a decay of each weight, and these are other weights.
        """
        if self.form == "factor":
            return values
        if self.decay is None:
            return 1 - values
        if layers != self.layers:
            changed = [name for name in layers if layers[name] != self.layers[name]]
            raise ConfigError(
                "`per_parameter_decay` has a decay of its own for each weight, but these tasks "
                f"have other shapes of {', '.join(changed)} than the model; leave it out where "
                "the number of classes differs."
            )
        beta = 1 - self.decay * spread(values, self.layers)
        return Params(torch.atleast_2d(beta), self.layers)
