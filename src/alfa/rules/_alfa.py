"""ALFA: rates generated from the learning state (Eqs. 5 to 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.ops import layer_means, uninitialized
from alfa.rules._base import register_rule
from alfa.rules._rates import (
    DECAY_START,
    BetaForm,
    Constant,
    Generated,
    Learned,
    Rate,
    TableRule,
    check_rates,
)
from alfa.types import Count, Params, PositiveFloat, Rates, State

StatePart = Literal["weights", "gradients"]
StateGradient = Literal["full", "weights", "none"]
GeneratorStart = Literal["identity", "random"]


@register_rule("alfa")
class ALFA(TableRule):
    """A small network g_phi reads the learning state and generates the step's rates.

    The state is the mean of every layer's weights and of its gradients, 2N values for N
    layers. Alpha and beta can each be generated, meta-learned or constant (Table 6).

    Args:
        layers: names and shapes of the adapted layers.
        num_steps: inner steps in training; later steps use the post-multipliers of the last one.
        alpha: `Generated`, `Learned`, or `Constant`.
        beta: `Generated`, `Learned`, or `Constant`.
        beta_form: the form of beta, ``"decay"``: 1 - beta0 beta1, or ``"factor"``: beta0 beta1.
        per_parameter_decay: multiply the decay by a meta-learned decay of each weight, which
            a random init needs (section 3.3).
        decay_start: the initial value of that decay.
        state: inputs of the generator, of ``"weights"`` and ``"gradients"`` (Table 5).
        state_gradient: the part of the state that the outer gradient flows through: ``"full"``,
            ``"weights"`` (the gradients' means are constants), or ``"none"``.
        generator_depth: number of linear layers in g_phi.
        generator_start: ``"identity"`` starts with outputs near 1, that is, as gradient descent
            with weight decay; ``"random"`` with outputs near 0 of either sign.
        generator: source of the random weights.

    Example:
        >>> import torch
        >>> from alfa import ALFA, Params
        >>> rule = ALFA({"w": torch.Size([3]), "b": torch.Size([1])}, num_steps=5)
        >>> theta = Params.of({"w": torch.ones(4, 3), "b": torch.zeros(4, 1)})  # four tasks
        >>> rule.rates(0, theta, theta).alpha.shape
        torch.Size([4, 2])
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Three linear layers, as in the paper; beta and the state as in the published code;
        # the generator starts as plain gradient descent with weight decay.
        "default": {
            "beta_form": "decay",
            "state_gradient": "weights",
            "generator_depth": 3,
            "generator_start": "identity",
        },
        # As the paper describes it. It does not say how much of the state the outer gradient flows
        # through; taken literally, Eq. 6 differentiates everything.
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
        check_rates(Constant, Learned, Generated, alpha=alpha, beta=beta)
        _check(alpha, beta, state, state_gradient, generator_depth)
        super().__init__(
            layers,
            alpha,
            beta,
            num_steps=num_steps,
            beta_form=beta_form,
            per_parameter_decay=per_parameter_decay,
            decay_start=decay_start,
        )
        self.alpha, self.beta = alpha, beta
        self.state = tuple(part for part in ("weights", "gradients") if part in state)
        self.state_gradient = state_gradient
        self._num_alphas = _num_outputs(alpha, len(layers))
        self._num_betas = _num_outputs(beta, len(layers))
        self.g_phi = _generator_network(
            num_inputs=len(self.state) * len(layers),
            num_hidden=2 * len(layers),
            num_outputs=self._num_alphas + self._num_betas,
            depth=generator_depth,
            generator=generator,
        )
        _initialize_last(self.g_phi[-1], generator_start, beta_form, self._num_alphas)

    @classmethod
    def preset(cls, name: str, layers: Mapping[str, torch.Size], **options: Any) -> ALFA:
        """ALFA with a preset, ``"default"``, ``"paper"``, or ``"published-code"``, and changes."""
        check_choice("preset", name, cls.presets)
        return cls(layers, **{**cls.presets[name], **options})

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        alpha1, beta1 = self._generate(params, grads, state)
        # Eq. 7: alpha = alpha0 * alpha1(tau), beta = beta0 * beta1(tau) in the `beta_form`
        alpha, beta = self.table_rates(step, params, alpha1, beta1)
        return Rates(alpha, beta, state=(alpha1, beta1))

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
        self, params: Params, grads: Params, state: State
    ) -> tuple[Tensor | None, Tensor | None]:
        """alpha1 and beta1, ``[task, layer]`` or ``[task, 1]``; None if not generated."""
        old_alpha, old_beta = state or (None, None)
        reuse_alpha = old_alpha is not None and not _is_per_step(self.alpha)
        reuse_beta = old_beta is not None and not _is_per_step(self.beta)
        if (reuse_alpha or not self._num_alphas) and (reuse_beta or not self._num_betas):
            return old_alpha, old_beta
        # Eq. 5: (alpha, beta) = g_phi(tau)
        generated = self.g_phi(self.learning_state(params, grads))
        alpha1, beta1 = generated.split([self._num_alphas, self._num_betas], dim=1)
        return (
            old_alpha if reuse_alpha else alpha1 if self._num_alphas else None,
            old_beta if reuse_beta else beta1 if self._num_betas else None,
        )


def _is_per_step(rate: Rate) -> bool:
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
        linear = uninitialized(nn.Linear, fan_in, fan_out)
        bound = fan_in**-0.5
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


@torch.no_grad()
def _initialize_last(
    last: nn.Module, start: GeneratorStart, form: BetaForm, num_alphas: int
) -> None:
    check_choice("generator_start", start, ("identity", "random"))
    assert isinstance(last, nn.Linear)
    if start == "identity":
        last.weight.mul_(0.1)
        last.bias.fill_(1)
    elif form == "factor":
        # Betas around 0 would wipe the weights at the first step.
        last.bias[num_alphas:].fill_(1)


def _check(alpha: Rate, beta: Rate, state: Sequence[str], state_gradient: str, depth: int) -> None:
    if not (isinstance(alpha, Generated) or isinstance(beta, Generated)):
        raise ConfigError(
            "neither `alpha` nor `beta` is generated; make one of them Generated(), or use the "
            "rule 'learned'."
        )
    if isinstance(state, str):
        raise ConfigError(f"`state` must be a list, such as ['weights'], got {state!r}.")
    if not state or len(set(state)) != len(state):
        raise ConfigError(
            f"`state` must name 'weights', 'gradients', or both, once each, got {list(state)!r}."
        )
    for part in state:
        check_choice("state", part, ("weights", "gradients"))
    check_choice("state_gradient", state_gradient, ("full", "weights", "none"))
    if depth < 1:
        raise ConfigError(f"`generator_depth` must be at least 1, got {depth}.")
