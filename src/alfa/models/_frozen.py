"""One task's adapted model as an ordinary torch module, for predictions and for export.

The module has the task's weights and the batch-norm statistics of its support set, so it classifies
each example independently.
"""

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
from alfa.ops import stages, uninitialized

# Marks a layer with the statistics of a support set; copies and pickles keep it.
_MARK = "_by_support"


def frozen_stages(stage: stages.Stage, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
    """Convert a network of stages to a module with one task's parameters.

    Batch norm gets the statistics of `x`. Raises ConfigError if torch has no module for a stage.
    """
    module = _module(stage, params).eval().requires_grad_(False)
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    with torch.no_grad(), observe_inputs(norms, lambda norm, z: _fix(norm, *_statistics(z))):
        module(x)
    return module


def _statistics(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of every channel."""
    dims = [dim for dim in range(z.ndim) if dim != 1]
    return z.mean(dims), z.var(dims, correction=0)


def _fix(norm: nn.Module, mean: Tensor, var: Tensor) -> None:
    norm.running_mean, norm.running_var = mean, var
    norm.eval()
    setattr(norm, _MARK, True)


def frozen_module(module: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
    """Return a copy of any module with one task's parameters and without dropout.

    Batch norm gets the statistics of `x`, unless it uses running statistics. If the module runs a
    batch-norm layer more than once, its statistics cannot be fixed; alfa then warns and leaves all
    of these layers unchanged, so examples depend on each other.
    """
    bound = Bound(copy.deepcopy(module).requires_grad_(False), params)
    for part in bound.modules():
        # User-defined modules may call functional dropout in training mode.
        part.training = part.training and isinstance(part, _NormBase)
    found: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {
        part: [] for part in bound.modules() if uses_batch_statistics(part)
    }
    if found:
        record = observe_inputs(found, lambda norm, z: found[norm].append(_statistics(z)))
        with torch.no_grad(), record:
            bound(x)
    reused = [name for name, part in bound.module.named_modules() if len(found.get(part, ())) > 1]
    if reused:
        warnings.warn(
            f"{type(module).__name__} uses its batch norm {', '.join(reused)} more than once, so "
            "alfa cannot fix its statistics to the support set's; predictions for an example "
            "depend on the other examples in the batch.",
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
            # The layer did not run, so its statistics have no effect.
            _fix(norm, x.new_zeros(norm.num_features), x.new_ones(norm.num_features))
    return bound


def disable_dropout(model: nn.Module) -> Callable[[], None]:
    """Disable dropout and nothing else, so that a model can still be adapted.

    This covers torch's dropout modules, attention and recurrent layers, and user-defined modules
    that call `torch.nn.functional.dropout` in training mode. The returned function undoes it.
    """
    parts = [part for part in model.modules() if part.training]
    drops = [part for part in parts if isinstance(part, _DropoutNd) or _is_user_defined(part)]
    # Not by their mode: cuDNN cannot differentiate a recurrent layer in evaluation mode.
    inner = [(p, p.dropout) for p in parts if isinstance(p, (nn.MultiheadAttention, nn.RNNBase))]
    for drop in drops:
        # Not `eval`, which would change the submodules, too.
        drop.training = False
    for part, _ in inner:
        part.dropout = 0.0

    def undo() -> None:
        for drop in drops:
            drop.training = True
        for part, dropout in inner:
            part.dropout = dropout

    return undo


def _is_user_defined(part: nn.Module) -> bool:
    """Return whether a module is user-defined, and its mode may only affect functional dropout."""
    other = (_NormBase, nn.MultiheadAttention, nn.RNNBase)
    return not isinstance(part, other) and not type(part).__module__.startswith("torch.")


def uses_batch_statistics(module: nn.Module) -> bool:
    """Return whether a module normalizes an example by the statistics of its batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


@contextlib.contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Within this context, make a frozen model's batch norm use the statistics of the batch."""
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


def _module(stage: stages.Stage, params: Mapping[str, Tensor]) -> nn.Module:
    own = [params[name] for name in stage.names]
    match stage:
        case stages.Chain():
            return nn.Sequential(*(_module(part, params) for part in stage.stages))
        case stages.Sum():
            return _Sum(*(_module(part, params) for part in stage.stages))
        case stages.Conv():
            num_outputs, num_inputs, side, _ = own[0].shape
            options = {"stride": stage.stride, "padding": side // 2, "bias": False}
            conv = uninitialized(nn.Conv2d, num_inputs, num_outputs, side, **options)
            return _filled(conv, *own)
        case stages.Norm():
            # Max pooling before the activation, which is monotonic, leaves it fewer values.
            norm = _filled(nn.BatchNorm2d(len(own[0])), *own)
            pool = [nn.MaxPool2d(stage.size)] if stage.size > 1 else []
            return nn.Sequential(
                norm, *pool, *([_activation(stage.slope)] if stage.slope < 1 else [])
            )
        case stages.Linear():
            return filled_linear(*own)
        case stages.Pool():
            pool = [nn.MaxPool2d(stage.size, padding=stage.padding)] if stage.size > 1 else []
            return nn.Sequential(_activation(stage.slope), *pool)
        case stages.MaxPool():
            return nn.MaxPool2d(3, stride=2, padding=1)
        case stages.Mask():
            return nn.Identity()
        case stages.Flatten():
            return nn.Flatten()
        case stages.GlobalPool():
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    raise ConfigError(
        f"a network with {type(stage).__name__} normalizes an example by others of its batch, so "
        "it cannot classify each example independently; train the model without it."
    )


def _activation(slope: float) -> nn.Module:
    return nn.LeakyReLU(slope) if slope else nn.ReLU()


def filled_linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """Return a linear layer with these parameters."""
    return _filled(uninitialized(nn.Linear, weight.shape[1], weight.shape[0]), weight, bias)


@torch.no_grad()
def _filled(module: nn.Module, *values: Tensor) -> nn.Module:
    """Set a module's parameters to these values, with their device and data type."""
    module.to(values[0].device, values[0].dtype)
    for parameter, value in zip(module.parameters(), values, strict=True):
        parameter.copy_(value)
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
    """A module with other parameters, which are buffers by name without a task dimension."""

    def __init__(self, module: nn.Module, params: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.module = module
        self._names = list(params)
        for number, value in enumerate(params.values()):
            self.register_buffer(f"param{number}", value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        params = {name: getattr(self, f"param{i}") for i, name in enumerate(self._names)}
        # Running statistics of the module stay unchanged.
        copies = {name: b.clone() for name, b in self.module.named_buffers()}
        return call(self.module, {**params, **copies}, x)
