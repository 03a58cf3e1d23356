"""TADAM's init: normalization layers that depend on the task, and scaled prototypes."""

import itertools

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.inits._base import Support, register_init
from alfa.inits._heads import TaskHead, prototypes
from alfa.inits._inits import _NORMS, Patterns
from alfa.models import last_layer
from alfa.ops import uninitialized
from alfa.types import Count, Params, PositiveFloat


@register_init("conditioned-prototypes")
class ConditionedPrototypes(TaskHead):
    """TADAM: a prototypical network that is conditioned on the task (Oreshkin et al., 2018).

    With c the mean of the prototypes of a task, the outputs y of each normalization layer become
    gamma y + beta, with gamma = 1 + gamma_0 h(c) and beta = beta_0 g(c) for each channel. h and g
    are residual networks of each layer, and gamma_0 and beta_0 are learned numbers. Embedded again,
    the support set gives the prototypes c_k of the outputs -alpha |z - c_k|^2, with a learned
    alpha: W_k = 2 alpha c_k and b_k = -alpha |c_k|^2.

    Args:
        model: a model with the parameters theta and with normalization layers that have a scale and
            a shift.
        adapt: patterns of the names of further adapted parameters; only inner steps change these.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.
        depth: number of linear layers in h and in g. The first has as many outputs as the
            normalization layer has channels, and each of the others adds its outputs to its inputs.
        multiplier: the start of gamma_0 and beta_0.
        metric_scale: the start of alpha.
        generator: source of the random weights of h and g.

    Examples:
        >>> import torch
        >>> from alfa import Conv4, SGD, adapt, cross_entropy
        >>> from alfa.inits import ConditionedPrototypes
        >>> model = Conv4((3, 16, 16), 5, filters=8)
        >>> init = ConditionedPrototypes(model)
        >>> x, y = torch.randn(1, 14, 3, 16, 16), torch.arange(7).repeat(2)[None]  # 7 classes
        >>> options = {"init": init, "rule": SGD(init.layers), "loss": cross_entropy}
        >>> adapt(model, x, y, num_steps=0, **options).params["norm1.weight"].shape
        torch.Size([1, 8])

    Raises:
        ConfigError: the model has no such normalization layers.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        adapt: Patterns | None = None,
        head: str | None = None,
        depth: Count = 3,
        multiplier: float = 0.1,
        metric_scale: PositiveFloat = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        norms = [path for path, part in model.named_modules() if _has_scale_and_shift(part)]
        if not norms:
            raise ConfigError(
                f"{type(model).__name__} has no normalization layer with scale and shift to "
                "condition on the task; use another backbone, or the init 'prototype-head'."
            )
        if depth < 1 or not metric_scale > 0:
            raise ConfigError(
                "`depth` must be at least 1 and `metric_scale` above 0, got "
                f"{depth} and {metric_scale}."
            )
        of_norms = [f"{path}.{name}" for path in norms for name in ("weight", "bias")]
        more = [] if adapt is None else [adapt] if isinstance(adapt, str) else list(adapt)
        of_head = f"{last_layer(model) if head is None else head}.*"
        super().__init__(model, adapt=[*more, *of_norms, of_head], head=head)
        self.norms = norms
        size = model.get_parameter(f"{self.head}.weight").shape[1]
        channels = [model.get_parameter(f"{path}.weight").numel() for path in norms]

        def network(num_outputs: int) -> nn.ModuleList:
            sizes = [size, *[num_outputs] * depth]
            return nn.ModuleList(_linear(a, b, generator) for a, b in itertools.pairwise(sizes))

        self.h = nn.ModuleList(network(number) for number in channels)
        self.g = nn.ModuleList(network(number) for number in channels)
        self.gamma0 = nn.Parameter(torch.full((len(norms),), float(multiplier)))
        self.beta0 = nn.Parameter(torch.full((len(norms),), float(multiplier)))
        self.alpha = nn.Parameter(torch.tensor([float(metric_scale)]))

    def initial_body(self, theta: Params, support: Support, way: int) -> Params:
        c = self._prototypes(theta, support, way).mean(1)
        layers = dict(theta)
        for number, path in enumerate(self.norms):
            weight, bias = theta[f"{path}.weight"], theta[f"{path}.bias"]
            gamma = (1 + self.gamma0[number] * _residual(self.h[number], c)).view_as(weight)
            beta = (self.beta0[number] * _residual(self.g[number], c)).view_as(bias)
            # gamma (weight y + bias) + beta, with y the normalized inputs
            layers[f"{path}.weight"], layers[f"{path}.bias"] = gamma * weight, gamma * bias + beta
        return Params.of(layers)

    def initial_head(self, body: Params, support: Support, way: int) -> dict[str, Tensor]:
        c = self._prototypes(body, support, way)
        return {"weight": 2 * self.alpha * c, "bias": -self.alpha * c.square().sum(2)}

    def _prototypes(self, params: Params, support: Support, way: int) -> Tensor:
        body = {name: t for name, t in params.items() if name not in self._head_names}
        return prototypes(support.embed(Params.of(body), self.head), support.y, way)


def _has_scale_and_shift(part: nn.Module) -> bool:
    pair = getattr(part, "weight", None), getattr(part, "bias", None)
    return isinstance(part, _NORMS) and None not in pair


def _linear(num_inputs: int, num_outputs: int, generator: torch.Generator | None) -> nn.Linear:
    linear = uninitialized(nn.Linear, num_inputs, num_outputs)
    nn.init.xavier_uniform_(linear.weight, generator=generator)
    nn.init.zeros_(linear.bias)
    return linear


def _residual(layers: nn.Module, c: Tensor) -> Tensor:
    first, *others = layers.children()
    out: Tensor = first(c)
    for layer in others:
        out = out + layer(out.relu())
    return out
