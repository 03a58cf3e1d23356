"""ALFA: rates generated from the learner's own state (Eqs. 5 to 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.ops import layer_means, undrawn
from alfa.rules._base import Rule, register_rule
from alfa.rules._rates import (
    ALPHA_START,
    DECAY_START,
    BetaForm,
    Constant,
    Generated,
    Learned,
    Rate,
    Table,
    WeightFactor,
    beta_start,
    check_rates,
)
from alfa.types import Count, Memory, Params, PositiveFloat, Rates

StatePart = Literal["weights", "gradients"]
StateGradient = Literal["full", "weights", "none"]
GeneratorStart = Literal["identity", "random"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Three linear layers, as in the paper; beta and the state as in the published code;
    # the generator starts as plain gradient descent with weight decay.
    "default": {
        "beta_form": "decay",
        "state_gradient": "weights",
        "generator_depth": 3,
        "generator_start": "identity",
    },
    # The paper's words. What it does not say, how far the outer gradient follows the state,
    # is taken literally: Eq. 6 differentiates everything.
    "paper": {
        "beta_form": "factor",
        "state_gradient": "full",
        "generator_depth": 3,
        "generator_start": "random",
    },
    "published-code": {
        "beta_form": "decay",
        "state_gradient": "weights",
        "generator_depth": 2,
        "generator_start": "random",
    },
}


@register_rule("alfa")
class ALFA(Rule):
    """A small network g_phi reads the learning state and generates the step's rates.

    The state is the mean of every layer's weights and of its gradients, 2N values for N
    layers. Alpha and beta can each be generated, meta-learned or constant (Table 6).

    Args:
        layers: names and shapes of the adapted layers.
        num_steps: inner steps in training; later steps use the last one's post-multipliers.
        alpha: `Generated`, `Learned` or `Constant`.
        beta: `Generated`, `Learned` or `Constant`.
        beta_form: how beta is read, ``"decay"``: 1 - beta0 beta1, or ``"factor"``: beta0 beta1.
        per_parameter_decay: multiplies the decay by a meta-learned one of each weight, which
            a random init needs (section 3.3).
        decay_start: where each weight's own decay starts, with `per_parameter_decay`.
        state: what the generator sees, of ``"weights"`` and ``"gradients"`` (Table 5).
        state_gradient: what of the state the outer gradient flows through: ``"full"``,
            ``"weights"`` (the gradients' means are constants) or ``"none"``.
        generator_depth: linear layers in g_phi.
        generator_start: ``"identity"`` starts with outputs near 1, that is, as gradient descent
            with weight decay; ``"random"`` with outputs near 0 of either sign.
        generator: source of the random start.

    Example:
        >>> import torch
        >>> from alfa import ALFA, Params
        >>> rule = ALFA({"w": torch.Size([3]), "b": torch.Size([1])}, num_steps=5)
        >>> theta = Params.of({"w": torch.ones(4, 3), "b": torch.zeros(4, 1)})  # four tasks
        >>> rule.rates(0, theta, theta).alpha.shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        num_steps: Count = 5,
        alpha: Rate = Generated(),  # noqa: B008 - frozen
        beta: Rate = Generated(),  # noqa: B008 - frozen
        beta_form: BetaForm = "decay",
        per_parameter_decay: bool = False,
        decay_start: PositiveFloat = DECAY_START,
        state: Sequence[StatePart] = ("weights", "gradients"),
        state_gradient: StateGradient = "weights",
        generator_depth: Count = 3,
        generator_start: GeneratorStart = "identity",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(layers)
        self.num_steps = num_steps
        check_rates(Constant, Learned, Generated, alpha=alpha, beta=beta)
        _check(alpha, beta, state, state_gradient, generator_depth)
        size = {"num_steps": num_steps, "num_layers": len(layers)}
        start = beta_start(beta_form, per_parameter=per_parameter_decay)
        self.alpha, self.beta = alpha, beta
        self.state = tuple(part for part in ("weights", "gradients") if part in state)
        self.state_gradient = state_gradient
        self.alpha0 = Table(alpha, start=ALPHA_START, **size)
        self.beta0 = Table(beta, start=start, **size)
        self.weight_factor = WeightFactor(
            beta,
            beta_form,
            per_parameter=per_parameter_decay,
            decay_start=decay_start,
            layers=self.layers,
        )
        self._num_alphas = _num_outputs(alpha, len(layers))
        self._num_betas = _num_outputs(beta, len(layers))
        self.g_phi = _generator_network(
            num_inputs=len(self.state) * len(layers),
            num_hidden=2 * len(layers),
            num_outputs=self._num_alphas + self._num_betas,
            depth=generator_depth,
            generator=generator,
        )
        _start(self.g_phi[-1], generator_start, beta_form, self._num_alphas)

    @classmethod
    def preset(cls, name: str, layers: Mapping[str, torch.Size], **options: Any) -> ALFA:
        """ALFA as ``"default"``, ``"paper"`` or ``"published-code"`` has it, with changes."""
        check_choice("preset", name, PRESETS)
        return cls(layers, **{**PRESETS[name], **options})

    def rates(self, step: int, params: Params, grads: Params, memory: Memory = ()) -> Rates:
        if self.alpha0.per_step or self.beta0.per_step:
            self.note_step(step, self.num_steps)
        like = params.flat
        alpha1, beta1 = self._generate(params, grads, memory)
        # Eq. 7: alpha = alpha0 * alpha1(tau)
        alpha = _multiply(self.alpha0.at(step, like=like), alpha1)
        # Eq. 7: beta = beta0 * beta1(tau), read as `beta_form` says
        beta = self.weight_factor(_multiply(self.beta0.at(step, like=like), beta1), params.layers)
        return Rates(alpha, beta, memory=(alpha1, beta1))

    def learning_state(self, params: Params, grads: Params) -> Tensor:
        """tau: layer-wise means of the weights, then of the gradients, ``[task, 2N]``."""
        parts = []
        if "weights" in self.state:
            means = layer_means(params)
            parts.append(means.detach() if self.state_gradient == "none" else means)
        if "gradients" in self.state:
            full = self.state_gradient == "full"
            parts.append(layer_means(grads if full else grads.like(grads.flat.detach())))
        return torch.cat(parts, dim=1)

    def _generate(
        self, params: Params, grads: Params, memory: Memory
    ) -> tuple[Tensor | None, Tensor | None]:
        """alpha1 and beta1, ``[task, layer]`` or ``[task, 1]``; None for one not generated."""
        kept: Memory = memory or (None, None)
        keep_alpha = kept[0] is not None and not _each_step(self.alpha)
        keep_beta = kept[1] is not None and not _each_step(self.beta)
        if (keep_alpha or not self._num_alphas) and (keep_beta or not self._num_betas):
            return kept[0], kept[1]
        # Eq. 5: (alpha, beta) = g_phi(tau)
        generated = self.g_phi(self.learning_state(params, grads))
        alpha1, beta1 = generated.split([self._num_alphas, self._num_betas], dim=1)
        return (
            kept[0] if keep_alpha else alpha1 if self._num_alphas else None,
            kept[1] if keep_beta else beta1 if self._num_betas else None,
        )


def _multiply(table: Tensor, generated: Tensor | None) -> Tensor:
    return table if generated is None else table * generated


def _each_step(rate: Rate) -> bool:
    return isinstance(rate, Generated) and rate.per_step


def _num_outputs(rate: Rate, num_layers: int) -> int:
    if not isinstance(rate, Generated):
        return 0
    return num_layers if rate.per_layer else 1


def _generator_network(
    *,
    num_inputs: int,
    num_hidden: int,
    num_outputs: int,
    depth: int,
    generator: torch.Generator | None,
) -> nn.Sequential:
    sizes = [num_inputs, *[num_hidden] * (depth - 1), num_outputs]
    modules: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = undrawn(nn.Linear, fan_in, fan_out)
        bound = fan_in**-0.5
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


@torch.no_grad()
def _start(last: nn.Module, start: GeneratorStart, form: BetaForm, num_alphas: int) -> None:
    check_choice("generator_start", start, ("identity", "random"))
    assert isinstance(last, nn.Linear)
    if start == "identity":
        last.weight.mul_(0.1)
        last.bias.fill_(1)
    elif form == "factor":
        # Betas around 0 would wipe the weights at the first step.
        last.bias[num_alphas:].fill_(1)


def _check(
    alpha: Rate,
    beta: Rate,
    state: Sequence[str],
    state_gradient: str,
    depth: int,
) -> None:
    if not (isinstance(alpha, Generated) or isinstance(beta, Generated)):
        raise ConfigError(
            "neither `alpha` nor `beta` is generated, so there is nothing for ALFA to do; "
            "make one of them Generated(), or use the rule 'learned'."
        )
    if isinstance(state, str):
        raise ConfigError(f"`state` is {state!r}, but must be a list, such as ['weights'].")
    if not state or len(set(state)) != len(state):
        raise ConfigError(
            f"`state` is {list(state)!r}, but must name 'weights', 'gradients' or both, once each."
        )
    for part in state:
        check_choice("state", part, ("weights", "gradients"))
    check_choice("state_gradient", state_gradient, ("full", "weights", "none"))
    if depth < 1:
        raise ConfigError(f"`generator_depth` is {depth}, but must be at least 1.")
