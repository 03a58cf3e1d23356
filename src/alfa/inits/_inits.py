"""Inits that start from a model's parameters, and the choice of the adapted layers."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from alfa.errors import ConfigError, did_you_mean
from alfa.inits._base import Init, Support, register_init
from alfa.models import last_layer
from alfa.ops import expand_to_parameters, layer_means, uninitialized
from alfa.types import Layers, Params

Patterns = Annotated[Sequence[str], BeforeValidator(lambda p: [p] if isinstance(p, str) else p)]
"""Patterns of parameter names, such as ``["conv*.weight"]``, or a single pattern.

``"head"`` selects the last layer, and ``"body"`` the other layers that are adapted by default.
"""

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class ModelInit(Init):
    """An init at the parameters of a model."""

    def __init__(self, model: nn.Module, *, adapt: Patterns | None = None) -> None:
        super().__init__()
        self.model = model
        self._layers = select_layers(model, adapt)

    @property
    def layers(self) -> Layers:
        return self._layers

    def start(self, support: Support) -> Params:
        # theta_{i,0} = theta, the same for every task (Algorithm 1, line 5)
        theta = torch.cat([self.model.get_parameter(name).flatten() for name in self._layers])
        return Params(theta.expand(support.num_tasks, -1), self._layers)

    def shared(self) -> dict[str, Tensor]:
        return {n: p for n, p in self.model.named_parameters() if n not in self._layers}


@register_init("learned")
class LearnedInit(ModelInit):
    """MAML's init: the outer loop trains the model's parameters, theta (Eq. 2).

    All tasks share the parameters that the inner loop does not adapt; the outer loop trains these,
    too.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, such as ``["head.*"]``; by default
            all parameters except normalization parameters and frozen ones
            (`requires_grad_(False)`). In a model that is frozen entirely, freezing has no effect.

    Examples:
        >>> from alfa import LearnedInit
        >>> from torch import nn
        >>> list(LearnedInit(nn.Linear(3, 1)).layers)
        ['weight', 'bias']
    """

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        return self.model.parameters()


@register_init("fixed")
class FixedInit(ModelInit):
    """The model's current parameters, for all tasks; the outer loop does not train them.

    Args:
        model: a model with the parameters theta, normally random.
        adapt: patterns of the names of the adapted parameters; by default all parameters except
            normalization parameters.

    Examples:
        >>> from alfa import FixedInit
        >>> from torch import nn
        >>> list(FixedInit(nn.Linear(3, 1)).meta_parameters())
        []
    """

    def start(self, support: Support) -> Params:
        theta = super().start(support)
        return theta.like(theta.flat.detach())

    def shared(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in super().shared().items()}

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        return iter(())


@register_init("attenuated")
class Attenuated(Init):
    """theta_{i,0} = gamma_i * theta, with gamma per task and layer (Baik et al., 2020, L2F).

    A small network maps the layer-wise means of the support gradient at theta to a factor between
    0 and 1 for each layer.

    Args:
        init: the init to attenuate.
        generator: source of the network's random weights.

    Examples:
        >>> from alfa import Attenuated, LearnedInit
        >>> from torch import nn
        >>> init = Attenuated(LearnedInit(nn.Linear(3, 1)))
        >>> sum(p.numel() for p in init.attenuator.parameters())  # N = 2: twice 2 x 2 + 2
        12
    """

    def __init__(self, init: Init, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.init = init
        size = len(init.layers)
        first, second = (uninitialized(nn.Linear, size, size) for _ in range(2))
        self.attenuator = nn.Sequential(first, nn.ReLU(), second, nn.Sigmoid())
        for parameter in self.attenuator.parameters():
            nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=generator)
        self.classification_only, self.variable_way = init.classification_only, init.variable_way
        self.has_step_parameters = init.has_step_parameters

    @property
    def layers(self) -> Layers:
        return self.init.layers

    def start(self, support: Support) -> Params:
        theta = self.init.start(support)
        gamma = self.attenuator(layer_means(support.gradients(theta)))
        return theta.like(expand_to_parameters(gamma, theta.layers) * theta.flat)

    def shared(self) -> dict[str, Tensor]:
        return self.init.shared()

    def shared_at(self, step: int) -> dict[str, Tensor]:
        return self.init.shared_at(step)

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        yield from self.init.meta_parameters()
        yield from self.attenuator.parameters()


def select_layers(model: nn.Module, adapt: Patterns | None) -> Layers:
    """Return the adapted layers of a model; tied parameters count once, under their first name.

    By default these are all parameters except normalization parameters and, unless all are frozen,
    frozen ones. Raises ConfigError if a pattern matches nothing, or the selection is empty.
    """
    named = dict(model.named_parameters())
    norms = [module for module in model.modules() if isinstance(module, _NORMS)]
    excluded = {p for norm in norms for p in norm.parameters(recurse=False)}
    if any(p.requires_grad for p in named.values()):
        excluded |= {p for p in named.values() if not p.requires_grad}
    chosen = {name for name, parameter in named.items() if parameter not in excluded}
    if adapt is not None:
        patterns = [adapt] if isinstance(adapt, str) else list(adapt)
        chosen = {name for p in patterns for name in _matches(p, model, named, default=chosen)}
    if not chosen:
        raise ConfigError(
            f"there is nothing to adapt: {type(model).__name__} has no parameters outside its "
            "normalization layers; name some with `adapt`."
        )
    return Layers({name: parameter.shape for name, parameter in named.items() if name in chosen})


def _matches(
    pattern: str, model: nn.Module, named: Mapping[str, nn.Parameter], *, default: set[str]
) -> list[str]:
    """Return the names that a pattern matches, of which `default` are adapted by default."""
    found = [name for name in named if fnmatchcase(name, pattern)]
    if not found and pattern in ("head", "body"):
        head = f"{last_layer(model)}."
        if pattern == "head":
            found = [name for name in named if name.startswith(head)]
        else:
            found = [name for name in default if not name.startswith(head)]
    if not found:
        raise ConfigError(
            f"`adapt` has {pattern!r}, which matches no parameter; the model has "
            f"{', '.join(named) or 'none'}.{did_you_mean(pattern, named)}"
        )
    return found
