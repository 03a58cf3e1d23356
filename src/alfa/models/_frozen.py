"""One task's adapted model as an ordinary torch module, for predictions and for export.

The stages of the engine are made for many tasks and their derivatives. What a task has learned is
the same network with fixed weights, and with fixed statistics of batch norm: those of its support
set. Then what it says of one example does not depend on the others.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from alfa.errors import AlfaWarning, ConfigError
from alfa.models._call import call
from alfa.ops import undrawn
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

# Marks a layer whose statistics are those of a support set; copies and pickles keep it.
_MARK = "_by_support"


def frozen_stages(stage: Stage, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
    """A network of stages, normalised by the statistics of some examples.

    Args:
        stage: the network.
        params: its parameters by name, without a task dimension.
        x: the examples, ``[example, channel, height, width]``.

    Raises:
        ConfigError: a part of it has no such form.
    """
    with torch.no_grad():
        module = _module(stage, params).eval().requires_grad_(False)
        norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
        handles = [norm.register_forward_pre_hook(_settle) for norm in norms]
        try:
            module(x)
        finally:
            for handle in handles:
                handle.remove()
    return module


def _settle(norm: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
    """Take the statistics of what a layer is given, as those that it keeps."""
    _keep(norm, *_statistics(inputs[0]))


def _statistics(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every channel."""
    dims = [dim for dim in range(z.ndim) if dim != 1]
    return z.mean(dims), z.var(dims, correction=0)


def _keep(norm: _BatchNorm, mean: Tensor, var: Tensor) -> None:
    norm.running_mean, norm.running_var = mean, var
    norm.eval()
    setattr(norm, _MARK, True)


def frozen_module(module: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
    """Any module with parameters of its own, normalised by the statistics of some examples.

    It is a copy, with dropout off. Layers of batch norm that have learned statistics, and use
    them, keep them. Where one is given more than one batch in a pass, no statistics fit; then all
    go on as they are, and a warning says that examples depend on each other.

    Args:
        module: any module.
        params: that are used instead, by their names, without a task dimension.
        x: the examples, ``[example, ...]``.
    """
    bound = Bound(copy.deepcopy(module).requires_grad_(False), params)
    for part in bound.modules():
        # Whatever it draws in training, also by functions that nobody sees from outside.
        part.training = part.training and isinstance(part, _NormBase)
    found: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {
        part: [] for part in bound.modules() if is_by_batch(part)
    }

    def look(norm: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        found[norm].append(_statistics(inputs[0] if inputs else named["input"]))

    handles = [norm.register_forward_pre_hook(look, with_kwargs=True) for norm in found]
    try:
        with torch.no_grad():
            if found:
                bound(x)
    finally:
        for handle in handles:
            handle.remove()
    often = [name for name, part in bound.module.named_modules() if len(found.get(part, ())) > 1]
    if often:
        warnings.warn(
            f"{type(module).__name__} uses its batch norm {', '.join(often)} more than once, so "
            "that it cannot keep the statistics of the support set; what is said of an example "
            "depends on the others that are given with it.",
            AlfaWarning,
            stacklevel=3,
        )
        return bound
    for norm, statistics in found.items():
        assert isinstance(norm, _BatchNorm)
        norm.eval()
        if statistics:
            _keep(norm, *statistics[0])
        elif norm.running_mean is None:
            # A layer that is not used changes nothing, whatever it keeps.
            _keep(norm, x.new_zeros(norm.num_features), x.new_ones(norm.num_features))
    return bound


def switch_off_dropout(model: nn.Module) -> Callable[[], None]:
    """Dropout off, and all else as it is, so that a model can still be adapted.

    That is the dropout of torch's own modules, also within attention and recurrent layers, and what
    a user's module does by `torch.nn.functional.dropout` while it is in training mode.

    Returns:
        Switches it on again where it was on.
    """
    parts = [part for part in model.modules() if part.training]
    drops = [part for part in parts if isinstance(part, _DropoutNd) or _is_own(part)]
    # They drop by themselves; in evaluation mode, cuDNN could not differentiate a recurrent one.
    inner = [part for part in parts if isinstance(part, (nn.MultiheadAttention, nn.RNNBase))]
    before = [part.dropout for part in inner]
    for drop in drops:
        # Not `eval`, which would go on to the parts of a part.
        drop.training = False
    for part in inner:
        part.dropout = 0.0

    def undo() -> None:
        for drop in drops:
            drop.training = True
        for part, dropout in zip(inner, before, strict=True):
            part.dropout = dropout

    return undo


def _is_own(part: nn.Module) -> bool:
    """Whether a part is of a user's kind, and the mode says nothing else than whether it drops."""
    other = (_NormBase, nn.MultiheadAttention, nn.RNNBase)
    return not isinstance(part, other) and not type(part).__module__.startswith("torch.")


def is_by_batch(module: nn.Module) -> bool:
    """Whether a module normalises an example by the others of its batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


@contextlib.contextmanager
def normalising_together(model: nn.Module) -> Iterator[None]:
    """A frozen model's batch norm by the statistics of the examples at hand, for a while."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and hasattr(m, _MARK)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        # What was taken of the support set stays.
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
        f"a network with {type(stage).__name__} normalises an example by others of its batch, so "
        "that it cannot be made one that predicts them one by one; train it without."
    )


def _conv(stage: Conv, params: Mapping[str, Tensor]) -> nn.Module:
    (weight,) = (params[name] for name in stage.names)
    num_outputs, num_inputs, side, _ = weight.shape
    options = {"stride": stage.stride, "padding": side // 2, "bias": False}
    conv = undrawn(nn.Conv2d, num_inputs, num_outputs, side, **options)
    return _filled(conv, weight=weight)


def _norm(stage: Norm, params: Mapping[str, Tensor]) -> nn.Module:
    gamma, beta = (params[name] for name in stage.names)
    parts = [_filled(nn.BatchNorm2d(len(gamma)), weight=gamma, bias=beta)]
    # Pooling first, as in the engine: the activation, which does not change the order, has less
    # to do then.
    if stage.size > 1:
        parts.append(nn.MaxPool2d(stage.size))
    if stage.slope < 1:
        parts.append(nn.LeakyReLU(stage.slope) if stage.slope else nn.ReLU())
    return nn.Sequential(*parts)


def filled_linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """A linear layer with these parameters."""
    linear = undrawn(nn.Linear, weight.shape[1], weight.shape[0])
    return _filled(linear, weight=weight, bias=bias)


@torch.no_grad()
def _filled(module: nn.Module, **values: Tensor) -> nn.Module:
    """A module with these parameters, of their type and where they are."""
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
        first, *others = self.parts
        total: Tensor = first(x)
        for part in others:
            total = total + part(x)
        return total


class Bound(nn.Module):
    """Any module with parameters of its own in place of the module's.

    Args:
        module: any module.
        params: that are used instead, by their names, without a task dimension.
    """

    def __init__(self, module: nn.Module, params: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.module = module
        self._names = list(params)
        for number, value in enumerate(params.values()):
            self.register_buffer(f"param{number}", value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        own = {name: getattr(self, f"param{i}") for i, name in enumerate(self._names)}
        # Running statistics, which a module may have, stay as they are.
        copies = {name: b.clone() for name, b in self.module.named_buffers()}
        return call(self.module, {**own, **copies}, x)
