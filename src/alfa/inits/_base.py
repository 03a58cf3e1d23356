"""The base classes of the initializations, and the choice of the adapted layers."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from alfa.errors import ConfigError, did_you_mean
from alfa.registry import Registry
from alfa.types import Layers, Params


@dataclass(frozen=True)
class Support:
    """The support sets of a stack of tasks, for inits that depend on them.

    Attributes:
        x: the support sets, ``[task, support, ...]``.
        y: their targets, ``[task, support, ...]``.
        gradients: maps parameters to the gradients of each task's support loss there, both
            ``[task, ...]``.
        embed: maps parameters and the name of a layer to that layer's inputs for the support sets,
            ``[task, support, feature]``.
    """

    x: Tensor
    y: Tensor
    gradients: Callable[[Params], Params]
    embed: Callable[[Params, str], Tensor]

    @property
    def num_tasks(self) -> int:
        return self.x.shape[0]


Patterns = Annotated[Sequence[str], BeforeValidator(lambda p: [p] if isinstance(p, str) else p)]
"""Patterns of parameter names, such as ``["head.*"]``; a single one needs no list."""

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class Init(nn.Module, abc.ABC):
    """Gives theta_{i,0}, the weights that adaptation starts from, for every task.

    To add one, subclass, implement the abstract methods, and decorate the class with
    ``@register_init("my-init")``. Its constructor takes the model first or, to wrap another
    init, an argument called ``init``; then keyword-only options.
    `alfa.testing.check_init` checks the contract of every init.

    Attributes:
        classification_only: targets must be class labels.
        variable_way: tasks may have any number of classes, and the last layer as many outputs.

    Example:
        >>> from alfa import Init, LearnedInit
        >>> from torch import nn
        >>> init: Init = LearnedInit(nn.Linear(3, 1))
        >>> dict(init.layers)
        {'weight': torch.Size([1, 3]), 'bias': torch.Size([1])}
    """

    classification_only: bool = False
    variable_way: bool = False

    @property
    @abc.abstractmethod
    def layers(self) -> Layers:
        """Names and shapes of the adapted parameters, in order; the shapes are the model's."""

    @abc.abstractmethod
    def start(self, support: Support) -> Params:
        """theta_{i,0} of every task.

        Args:
            support: the tasks' support sets.
        """

    @abc.abstractmethod
    def shared(self) -> dict[str, Tensor]:
        """The parameters that the inner loop does not adapt, without a task dimension."""

    @abc.abstractmethod
    def meta_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that the outer loop trains."""


class ModelInit(Init):
    """An init at the parameters of a model.

    Args:
        model: holds theta.
        adapt: patterns of the names of the adapted parameters, such as ``["head.*"]``; by default
            all but those of normalization layers, and those that are frozen
            (`requires_grad_(False)`) if others are not.
    """

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


INITS: Registry[Init] = Registry("init", context=("generator",))
register_init = INITS.register


def select_layers(model: nn.Module, adapt: Patterns | None) -> Layers:
    """The parameters to adapt.

    Args:
        model: tied parameters count once, under their first name.
        adapt: patterns such as ``"head.*"``; None for all parameters except those of
            normalization layers, and those that are frozen unless all are.

    Raises:
        ConfigError: if a pattern matches nothing, or there is nothing to adapt.
    """
    names = [name for name, _ in model.named_parameters()]
    if adapt is None:
        of_norms = {
            f"{prefix}.{name}" if prefix else name
            for prefix, module in model.named_modules()
            if isinstance(module, _NORMS)
            for name, _ in module.named_parameters(recurse=False)
        }
        frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
        if len(frozen) == len(names):
            frozen = set()
        chosen = [name for name in names if name not in of_norms and name not in frozen]
    else:
        patterns = [adapt] if isinstance(adapt, str) else list(adapt)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(
                    f"`adapt` has {pattern!r}, which matches no parameter; there are "
                    f"{', '.join(names) or 'none'}.{did_you_mean(pattern, names)}"
                )
        chosen = [name for name in names if any(fnmatchcase(name, p) for p in patterns)]
    if not chosen:
        raise ConfigError(
            f"there is nothing to adapt: {type(model).__name__} has no parameters outside its "
            "normalization layers; name some with `adapt`."
        )
    return Layers({name: model.get_parameter(name).shape for name in chosen})
