"""What an initialization is, and which of a model's parameters are layers."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from alfa.errors import ConfigError, did_you_mean
from alfa.registry import Registry
from alfa.types import Layers, Params


@dataclass(frozen=True)
class Support:
    """What an init that depends on the task may know of it.

    Attributes:
        x: the support sets, ``[task, support, ...]``.
        y: their targets, ``[task, support, ...]``.
        gradients: of each task's support loss at given parameters, both ``[task, ...]``.
        embed: what the model makes of the support sets before a layer, named second, at given
            parameters, ``[task, support, feature]``.
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
    """Where adaptation starts: gives theta_{i,0} for every task.

    To add one, subclass, implement the abstract methods, and decorate the class with
    ``@register_init("my-init")``. Its constructor takes the model first or, to wrap another
    init, an argument called ``init``; then keyword-only options.
    `alfa.testing.check_init` runs the contract that every
    init of the package passes.

    Attributes:
        needs_classes: targets must be the numbers of classes.
        any_way: tasks may have any number of classes, and the last layer that many outputs.
    """

    needs_classes: bool = False
    any_way: bool = False

    @property
    @abc.abstractmethod
    def layers(self) -> Layers:
        """Names and shapes of the parameters that the inner loop adapts, in order.

        Where there may be any number of classes, these are the shapes of the model itself.
        """

    @abc.abstractmethod
    def start(self, support: Support) -> Params:
        """theta_{i,0} of every task.

        Args:
            support: the tasks' support sets.
        """

    @abc.abstractmethod
    def shared(self) -> dict[str, Tensor]:
        """The parameters that the inner loop leaves alone, without a task dimension."""

    @abc.abstractmethod
    def meta_parameters(self) -> Iterator[nn.Parameter]:
        """What the outer loop trains."""


INITS: Registry[Init] = Registry("init")
register_init = INITS.register


def select_layers(model: nn.Module, adapt: Patterns | None) -> Layers:
    """The parameters to adapt.

    Args:
        model: tied parameters count once, under their first name.
        adapt: patterns such as ``"head.*"``; None for all parameters except those of
            normalisation layers, and those that are frozen where not all are.

    Raises:
        ConfigError: a pattern matches nothing, or there is nothing to adapt.
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
            # Of a model that is not trained at all, this says nothing.
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
            "normalisation layers; name some with `adapt`."
        )
    return Layers({name: model.get_parameter(name).shape for name in chosen})
