"""The base class of the convolutional backbones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.models._base import DEFAULT_MODE, ExecutionMode, Model
from alfa.models._frozen import frozen_stages
from alfa.ops import Loss, Plan, cross_entropy, mse, network, network_gradients, uninitialized
from alfa.ops.stages import Chain, Conv, Linear, Norm, Stage
from alfa.types import Params

# Up to this many values in an image set after the first convolution, tasks run side by side.
# Below it the number of operations dominates, above it their size; see docs/results/engine.md.
_MAX_SIDE_BY_SIDE = 2_000_000


class Convolutional(Model):
    """A backbone made of stages.

    Attributes:
        network: the stages, which name their parameters; the last is the linear layer.
    """

    network: Chain
    has_batch_norm = True
    head_name = "linear"

    def build(
        self,
        stages: Sequence[Stage],
        num_features: int,
        num_outputs: int,
        generator: torch.Generator | None,
    ) -> None:
        """Add the linear layer, draw Xavier-uniform weights, and set all biases to zero."""
        self.linear = uninitialized(nn.Linear, num_features, num_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.network = Chain(*stages, Linear("linear"))

    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        return network(self.plan(x, mode), x, [params[name] for name in self.network.names])

    def embedded(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        body = Chain(*self.network.stages[:-1])
        plan = self.plan(x, mode)._replace(stage=body)
        return network(plan, x, [params[name] for name in body.names])

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
        mode: ExecutionMode = DEFAULT_MODE,
    ) -> tuple[Tensor, Params] | None:
        num_tasks = x.shape[0]
        bias = f"{self.head_name}.bias"
        # Not `params[bias]`: that would cache views without a graph if autograd takes over.
        (num_outputs,) = params.layers[bias] if bias in params.layers else shared[bias].shape
        outputs = params.flat.new_zeros(*targets.shape[:2], num_outputs)
        is_overridden = type(self).stacked is not Convolutional.stacked
        if is_overridden or _needs_autograd(loss, outputs, targets):
            return None
        everything = {**{n: p.expand(num_tasks, *p.shape) for n, p in shared.items()}, **params}
        w = [everything[name] for name in self.network.names]
        wanted = [name in params for name in self.network.names]
        losses, gradients = network_gradients(self.plan(x, mode), x, targets, w, loss, wanted)
        named = dict(zip((n for n in self.network.names if n in params), gradients, strict=True))
        # Parameters that the network does not use, biases before batch norm, have gradient zero.
        rows = [
            named[name].flatten(1) if name in named else p.new_zeros(num_tasks, p[0].numel())
            for name, p in params.items()
        ]
        return losses, params.like(torch.cat(rows, dim=1))

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        return frozen_stages(self.network, params, x)

    def plan(self, x: Tensor, mode: ExecutionMode) -> Plan:
        """Whether the tasks run side by side or one after the other."""
        if x.ndim != 5 or 0 in x.shape:
            raise ConfigError(
                f"the images of a stack of tasks have the shape {list(x.shape)}, but must be "
                "[task, example, channel, height, width], with at least one of each."
            )
        num_tasks, num_examples, _, height, width = x.shape
        side_by_side = mode.over_tasks == "stack"
        if mode.over_tasks == "auto":
            # Not `get_parameter`: within another module, a tensor may replace the parameter.
            layer, _, weight = self.network.names[0].rpartition(".")
            filters = getattr(self.get_submodule(layer), weight).shape[0]
            side_by_side = num_examples * height * width * filters <= _MAX_SIDE_BY_SIDE
        return Plan(self.network, num_tasks if side_by_side else 1, mode.num_norm_examples)


def image_shape(
    input_shape: Sequence[int], *, min_size: int, name: str, fix: str = "use larger images"
) -> tuple[int, int, int]:
    """Channels, height, and width, if a model supports images of this shape."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"the shape of one input is {list(input_shape)}, but this model takes images: "
            "channels, height and width; use the model 'mlp' for vectors."
        )
    num_channels, height, width = input_shape
    if min(height, width) < min_size:
        raise ConfigError(
            f"images of {height} x {width} are too small for {name}, which needs "
            f"{min_size} x {min_size}; {fix}."
        )
    return num_channels, height, width


def check_filters(filters: Sequence[int]) -> None:
    """Raise unless these are the filters of four groups of layers."""
    if len(filters) != 4 or min(filters) < 1:
        raise ConfigError(f"`filters` is {list(filters)}, but must be four numbers, 1 or more.")


def add_conv_norm(
    module: nn.Module,
    module_name: str,
    suffix: str,
    num_inputs: int,
    num_outputs: int,
    side: int,
    *,
    slope: float,
    stride: int = 1,
) -> tuple[Conv, Norm]:
    """Add a convolution without bias and its batch norm to a part of a model.

    Returns their stages; the slope is that of the leaky ReLU after the batch norm.
    """
    options = {"stride": stride, "padding": side // 2, "bias": False}
    conv = uninitialized(nn.Conv2d, num_inputs, num_outputs, side, **options)
    module.add_module(f"conv{suffix}", conv)
    module.add_module(f"norm{suffix}", nn.BatchNorm2d(num_outputs, track_running_stats=False))
    prefix = f"{module_name}." if module_name else ""
    stage = Conv(f"{prefix}conv{suffix}", stride=stride)
    return stage, Norm(f"{prefix}norm{suffix}", size=1, slope=slope)


def _needs_autograd(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether a loss has trained parameters, or does not depend on the outputs."""
    if loss is cross_entropy or loss is mse:
        return False
    with torch.enable_grad():
        constant = loss(outputs, targets).requires_grad
        depends = loss(outputs.requires_grad_(), targets).requires_grad
    return constant or not depends
