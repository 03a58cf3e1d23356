"""One task's adapted model as an ordinary torch module, for predictions and for export.

The module is the same network with fixed weights and with the batch-norm statistics of the task's
support set, so it classifies each example independently.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from alfa.errors import AlfaWarning, ConfigError
from alfa.models._call import call, observe_inputs
from alfa.ops import uninitialized
from alfa.ops.stages import (
    Chain,
    Conv,
    Flatten,
    GlobalPool,
    Linear,
    MaxPool,
    Norm,
    Pool,
    Stage,
    Sum,
)

# Marks a layer with the statistics of a support set; copies and pickles keep it.
_MARK = "_by_support"


def frozen_stages(stage: Stage, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
    """A network of stages, normalized by the statistics of some examples.

    Args:
        stage: the network.
        params: its parameters by name, without a task dimension.
        x: the examples, ``[example, channel, height, width]``.

    Raises:
        ConfigError: if torch has no module for a stage.
    """
    module = _module(stage, params).eval().requires_grad_(False)
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    with torch.no_grad(), observe_inputs(norms, lambda norm, z: _fix(norm, *_statistics(z))):
        module(x)
    return module


def _statistics(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every channel."""
    dims = [dim for dim in range(z.ndim) if dim != 1]
    return z.mean(dims), z.var(dims, correction=0)


def _fix(norm: nn.Module, mean: Tensor, var: Tensor) -> None:
    """Fix the statistics of a layer."""
    norm.running_mean, norm.running_var = mean, var
    norm.eval()
    setattr(norm, _MARK, True)


def frozen_module(module: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
    """A copy of any module with other parameters, normalized by the statistics of some examples.

    Dropout is off. Batch-norm layers that use running statistics keep them. If a pass uses a
    layer more than once, its statistics cannot be fixed; alfa then leaves all layers unchanged, and
    warns that examples depend on each other.

    Args:
        module: any module.
        params: the parameters by name, without a task dimension.
        x: the examples, ``[example, ...]``.
    """
    bound = Bound(copy.deepcopy(module).requires_grad_(False), params)
    for part in bound.modules():
        # Functional dropout depends on the mode of the user's module.
        part.training = part.training and isinstance(part, _NormBase)
    found: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {
        part: [] for part in bound.modules() if uses_batch_statistics(part)
    }
    if found:
        record = observe_inputs(found, lambda norm, z: found[norm].append(_statistics(z)))
        with torch.no_grad(), record:
            bound(x)
    often = [name for name, part in bound.module.named_modules() if len(found.get(part, ())) > 1]
    if often:
        warnings.warn(
            f"{type(module).__name__} uses its batch norm {', '.join(often)} more than once, so "
            "its statistics cannot be fixed to those of the support set; predictions for an "
            "example depend on the other examples in the batch.",
            AlfaWarning,
            stacklevel=3,
        )
        return bound
    for norm, statistics in found.items():
        assert isinstance(norm, _BatchNorm)
        norm.eval()
        if statistics:
            _fix(norm, *statistics[0])
        elif norm.running_mean is None:
            # The statistics of an unused layer have no effect.
            _fix(norm, x.new_zeros(norm.num_features), x.new_ones(norm.num_features))
    return bound


def disable_dropout(model: nn.Module) -> Callable[[], None]:
    """Disable dropout and change nothing else, so that a model can still be adapted.

    This covers torch's dropout modules, attention and recurrent layers, and user-defined modules
    that call `torch.nn.functional.dropout` in training mode.

    Returns:
        A function that enables it again.
    """
    parts = [part for part in model.modules() if part.training]
    drops = [part for part in parts if isinstance(part, _DropoutNd) or _is_user_defined(part)]
    # Not by their mode: cuDNN cannot differentiate a recurrent layer in evaluation mode.
    inner = [part for part in parts if isinstance(part, (nn.MultiheadAttention, nn.RNNBase))]
    before = [part.dropout for part in inner]
    for drop in drops:
        # Not `eval`, which would change the submodules, too.
        drop.training = False
    for part in inner:
        part.dropout = 0.0

    def undo() -> None:
        for drop in drops:
            drop.training = True
        for part, dropout in zip(inner, before, strict=True):
            part.dropout = dropout

    return undo


def _is_user_defined(part: nn.Module) -> bool:
    """Whether a module is user-defined, and its mode may only affect functional dropout."""
    other = (_NormBase, nn.MultiheadAttention, nn.RNNBase)
    return not isinstance(part, other) and not type(part).__module__.startswith("torch.")


def uses_batch_statistics(module: nn.Module) -> bool:
    """Whether a module normalizes an example by the statistics of its batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


@contextlib.contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Within this context, a frozen model's batch norm uses the statistics of the batch."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and hasattr(m, _MARK)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        # Keep the statistics of the support set.
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.eval()
            norm.momentum = momentum


def _module(stage: Stage, params: Mapping[str, Tensor]) -> nn.Module:
    match stage:
        case Chain():
            return nn.Sequential(*(_module(part, params) for part in stage.stages))
        case Sum():
            return _Sum(*(_module(part, params) for part in stage.stages))
        case Conv():
            return _conv(stage, params)
        case Norm():
            return _norm(stage, params)
        case Linear():
            return filled_linear(*(params[name] for name in stage.names))
        case Pool():
            size, padding = stage.size, stage.padding
            pooled = [nn.MaxPool2d(size, padding=padding)] if size > 1 else []
            return nn.Sequential(nn.ReLU(), *pooled)
        case MaxPool():
            return nn.MaxPool2d(3, stride=2, padding=1)
        case Flatten():
            return nn.Flatten()
        case GlobalPool():
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    raise ConfigError(
        f"a network with {type(stage).__name__} normalizes an example by others of its batch, so "
        "it cannot classify each example independently; train it without."
    )


def _conv(stage: Conv, params: Mapping[str, Tensor]) -> nn.Module:
    (weight,) = (params[name] for name in stage.names)
    num_outputs, num_inputs, side, _ = weight.shape
    options = {"stride": stage.stride, "padding": side // 2, "bias": False}
    conv = uninitialized(nn.Conv2d, num_inputs, num_outputs, side, **options)
    return _filled(conv, weight=weight)


def _norm(stage: Norm, params: Mapping[str, Tensor]) -> nn.Module:
    gamma, beta = (params[name] for name in stage.names)
    parts = [_filled(nn.BatchNorm2d(len(gamma)), weight=gamma, bias=beta)]
    # Pooling first, as in the engine: the activation is monotonic, and then has fewer values.
    if stage.size > 1:
        parts.append(nn.MaxPool2d(stage.size))
    if stage.slope < 1:
        parts.append(nn.LeakyReLU(stage.slope) if stage.slope else nn.ReLU())
    return nn.Sequential(*parts)


def filled_linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """A linear layer with these parameters."""
    linear = uninitialized(nn.Linear, weight.shape[1], weight.shape[0])
    return _filled(linear, weight=weight, bias=bias)


@torch.no_grad()
def _filled(module: nn.Module, **values: Tensor) -> nn.Module:
    """A module with these parameters, on their device and in their dtype."""
    example = next(iter(values.values()))
    module.to(example.device, example.dtype)
    for name, value in values.items():
        module.get_parameter(name).copy_(value)
    return module


class _Sum(nn.Module):
    """The sum of modules that have the same input."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = reduce(torch.add, (part(x) for part in self.parts))
        return total


class Bound(nn.Module):
    """Any module with other parameters.

    Args:
        module: any module.
        params: the parameters by name, without a task dimension.
    """

    def __init__(self, module: nn.Module, params: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.module = module
        self._names = list(params)
        for number, value in enumerate(params.values()):
            self.register_buffer(f"param{number}", value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        params = {name: getattr(self, f"param{i}") for i, name in enumerate(self._names)}
        # Copies, so that running statistics stay unchanged.
        copies = {name: b.clone() for name, b in self.module.named_buffers()}
        return call(self.module, {**params, **copies}, x)
