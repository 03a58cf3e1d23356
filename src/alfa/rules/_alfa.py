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
from alfa.rules._rates import DECAY_START, BetaForm, Constant, Generated, Learned, Rate, TableRule
from alfa.types import Count, Params, PositiveFloat, Rates, State

StatePart = Literal["weights", "gradients"]
StateGradient = Literal["full", "weights", "none"]
GeneratorStart = Literal["identity", "random"]


def _preset(
    form: BetaForm, state_gradient: StateGradient, depth: int, start: GeneratorStart
) -> Mapping[str, Any]:
    generator = {"generator_depth": depth, "generator_start": start}
    return {"beta_form": form, "state_gradient": state_gradient, **generator}


@register_rule("alfa")
class ALFA(TableRule):
    """A small network, g_phi, that generates the rates of a step from the learning state.

    The learning state contains the means of each layer's weights and gradients, 2N values for N
    layers. Alpha and beta can each be generated, meta-learned, or constant (Table 6).

    Args:
        layers: names and shapes of the adapted layers.
        num_steps: inner steps in training; later steps use the last step's post-multipliers.
        alpha: `Generated`, `Learned`, or `Constant`.
        beta: `Generated`, `Learned`, or `Constant`.
        beta_form: the form of beta, ``"decay"``: 1 - beta0 beta1, or ``"factor"``: beta0 beta1.
        per_parameter_decay: multiply the decay by a meta-learned decay of each weight, which
            a random init needs (section 3.3).
        decay_start: the initial value of the decay of each weight.
        state: the generator's inputs: ``"weights"``, ``"gradients"``, or both (Table 5).
        state_gradient: the part of the state that the outer gradient flows through: ``"full"``,
            ``"weights"`` (the gradients' means are constants), or ``"none"``.
        generator_depth: number of linear layers in g_phi.
        generator_start: ``"identity"`` starts with outputs near 1, which is gradient descent with
            weight decay; ``"random"`` starts with small outputs of either sign.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa import ALFA, Params
        >>> rule = ALFA({"w": torch.Size([3]), "b": torch.Size([1])}, num_steps=5)
        >>> theta = Params.of({"w": torch.ones(4, 3), "b": torch.zeros(4, 1)})  # four tasks
        >>> rule.rates(0, theta, theta).alpha.shape
        torch.Size([4, 2])
    """

    sources = (Constant, Learned, Generated)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Three linear layers as in the paper, and beta and the state as in the published code.
        "default": _preset("decay", "weights", 3, "identity"),
        # The paper does not specify `state_gradient`; Eq. 6, taken literally, implies "full".
        "paper": _preset("factor", "full", 3, "random"),
        "published-code": _preset("decay", "weights", 2, "random"),
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
        super().__init__(
            layers, alpha, beta, num_steps, beta_form, per_parameter_decay, decay_start
        )
        if not (isinstance(alpha, Generated) or isinstance(beta, Generated)):
            raise ConfigError(
                "neither `alpha` nor `beta` is generated; make one of them Generated(), or use the "
                "rule 'learned'."
            )
        parts = ("weights", "gradients")
        if isinstance(state, str) or not 0 < len(state) == len(set(state) & set(parts)):
            raise ConfigError(
                "`state` must be a list of 'weights', 'gradients', or both, once each, got "
                f"{state!r}."
            )
        check_choice("state_gradient", state_gradient, ("full", "weights", "none"))
        check_choice("generator_start", generator_start, ("identity", "random"))
        if generator_depth < 1:
            raise ConfigError(f"`generator_depth` must be at least 1, got {generator_depth}.")
        self.alpha, self.beta = alpha, beta
        self.state = tuple(part for part in parts if part in state)
        self.state_gradient = state_gradient
        num_layers = len(layers)
        self._num_alphas, self._num_betas = (
            (num_layers if rate.per_layer else 1) if isinstance(rate, Generated) else 0
            for rate in (alpha, beta)
        )
        hidden = [2 * num_layers] * (generator_depth - 1)
        sizes = [len(self.state) * num_layers, *hidden, self._num_alphas + self._num_betas]
        self.g_phi = _generator_network(sizes, generator)
        with torch.no_grad():
            last = self.g_phi[-1]
            assert isinstance(last, nn.Linear)
            if generator_start == "identity":
                last.weight.mul_(0.1)
                last.bias.fill_(1)
            elif beta_form == "factor":
                # Betas near 0 would erase the weights at the first step.
                last.bias[self._num_alphas :].fill_(1)

    @classmethod
    def preset(cls, name: str, layers: Mapping[str, torch.Size], **options: Any) -> ALFA:
        """Create ALFA from a preset, ``"default"``, ``"paper"``, or ``"published-code"``.

        Other options override the preset's.
        """
        check_choice("preset", name, cls.presets)
        return cls(layers, **{**cls.presets[name], **options})

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        alpha1, beta1 = previous = state or (None, None)
        is_new = [
            isinstance(rate, Generated) and (rate.per_step or not state)
            for rate in (self.alpha, self.beta)
        ]
        if any(is_new):
            # Eq. 5: (alpha, beta) = g_phi(tau)
            generated = self.g_phi(self.learning_state(params, grads))
            parts = generated.split([self._num_alphas, self._num_betas], dim=1)
            alpha1, beta1 = (
                new if use_new else old
                for new, use_new, old in zip(parts, is_new, previous, strict=True)
            )
        # Eq. 7: alpha = alpha0 * alpha1(tau), beta = beta0 * beta1(tau) in the `beta_form`
        alpha, beta = self.table_rates(step, params, alpha1, beta1)
        return Rates(alpha, beta, state=(alpha1, beta1))

    def learning_state(self, params: Params, grads: Params) -> Tensor:
        """Return tau, the layer-wise means of weights, then of gradients, ``[task, 2N]``."""
        parts = []
        if "weights" in self.state:
            means = layer_means(params)
            parts.append(means.detach() if self.state_gradient == "none" else means)
        if "gradients" in self.state:
            full = self.state_gradient == "full"
            parts.append(layer_means(grads if full else grads.like(grads.flat.detach())))
        return torch.cat(parts, dim=1)


def _generator_network(sizes: Sequence[int], generator: torch.Generator | None) -> nn.Sequential:
    """Return linear layers of these sizes with ReLU between them."""
    modules: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = uninitialized(nn.Linear, fan_in, fan_out)
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -(fan_in**-0.5), fan_in**-0.5, generator=generator)
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])
