"""The base class of the convolutional backbones."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.models._base import DEFAULT_MODE, ExecutionMode, Model, linear_outputs, with_shared
from alfa.models._dropout import DropBlock, Dropout
from alfa.models._frozen import frozen_stages
from alfa.ops import Loss, Plan, cross_entropy, mse, network, network_gradients, uninitialized
from alfa.ops.stages import Chain, Conv, Linear, Mask, Norm, Stage
from alfa.types import Params

# Tasks run side by side up to this many values per image set after the first convolution. Below it
# the number of operations dominates the cost, above it their size; see docs/results/engine.md.
_MAX_SIDE_BY_SIDE = 2_000_000

Slope = Annotated[float, Ge(0), Lt(1)]
"""The slope of a leaky ReLU for negative values; 0 means ReLU."""

Probability = Annotated[float, Ge(0), Lt(1)]
"""The probability to drop a value."""


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
        feature_shape: Sequence[int],
        num_outputs: int,
        generator: torch.Generator | None,
        draw: Callable[..., Tensor] = nn.init.xavier_uniform_,
    ) -> None:
        """Add the linear layer, draw all weights, and set all biases to zero.

        `draw` draws the weights of the convolutions; the linear layer is Xavier-uniform.
        """
        self.feature_shape = tuple(feature_shape)
        self.linear: nn.Module = uninitialized(nn.Linear, math.prod(feature_shape), num_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                is_linear = isinstance(module, nn.Linear)
                chosen = nn.init.xavier_uniform_ if is_linear else draw
                chosen(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.network = Chain(*stages, Linear("linear"))

    def add_conv(
        self,
        path: str,
        num_inputs: int,
        num_outputs: int,
        side: int,
        *,
        stride: int = 1,
        bias: bool = False,
    ) -> Conv:
        """Add a convolution, and return its stage.

        For the path ``"block.1"`` the module is ``block.conv1``.
        """
        options = {"stride": stride, "padding": side // 2, "bias": bias}
        conv = uninitialized(nn.Conv2d, num_inputs, num_outputs, side, **options)
        return Conv(self._add(path, "conv", conv), stride=stride)

    def add_norm(self, path: str, num_channels: int, *, slope: float, pool: int = 1) -> Norm:
        """Add batch norm with max pooling and leaky ReLU, and return their stage.

        For the path ``"block.1"`` the module is ``block.norm1``.
        """
        norm = nn.BatchNorm2d(num_channels, track_running_stats=False)
        return Norm(self._add(path, "norm", norm), size=pool, slope=slope)

    def add_conv_norm(
        self,
        path: str,
        num_inputs: int,
        num_outputs: int,
        side: int,
        *,
        slope: float = 0.0,
        stride: int = 1,
        pool: int = 1,
        bias: bool = False,
    ) -> tuple[Conv, Norm]:
        """Add a convolution, batch norm, and leaky ReLU, and return their stages.

        Batch norm cancels the bias, so the stages do not use it.
        """
        conv = self.add_conv(path, num_inputs, num_outputs, side, stride=stride, bias=bias)
        return conv, self.add_norm(path, num_outputs, slope=slope, pool=pool)

    def add_dropout(self, path: str, probability: float, *, block_size: int = 1) -> list[Stage]:
        """Add dropout, and return its stage; without a probability, add and return nothing."""
        if not probability:
            return []
        drop = Dropout(probability)
        if block_size > 1:
            drop = DropBlock(probability, block_size)
        self._add(path, "drop", drop)
        return [Mask(drop.draw)]

    def _add(self, path: str, kind: str, module: nn.Module) -> str:
        """Add a module at a path, with its kind before the last part, and return its name."""
        parent, dot, suffix = path.rpartition(".")
        self.get_submodule(parent).add_module(f"{kind}{suffix}", module)
        return f"{parent}{dot}{kind}{suffix}"

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

    def classify(self, params: Mapping[str, Tensor], z: Tensor) -> Tensor:
        return linear_outputs(self.head_name, params, z)

    def remove_head(self) -> None:
        self.network, self.linear = Chain(*self.network.stages[:-1]), nn.Identity()

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
        mode: ExecutionMode = DEFAULT_MODE,
    ) -> tuple[Tensor, Params] | None:
        bias = f"{self.head_name}.bias"
        # Not `params[bias]`: that would cache views without a graph if autograd takes over.
        (num_outputs,) = params.layers[bias] if bias in params.layers else shared[bias].shape
        outputs = params.flat.new_zeros(*targets.shape[:2], num_outputs)
        is_overridden = type(self).stacked is not Convolutional.stacked
        if is_overridden or _needs_autograd(loss, outputs, targets):
            return None
        names = self.network.names
        tensors = with_shared(params, shared)
        w, wanted = [tensors[name] for name in names], [name in params for name in names]
        losses, gradients = network_gradients(self.plan(x, mode), x, targets, w, loss, wanted)
        named = dict(zip((name for name in names if name in params), gradients, strict=True))
        # The network does not use biases before batch norm, so their gradient is zero.
        rows = [
            named[name].flatten(1) if name in named else p.new_zeros(len(p), p[0].numel())
            for name, p in params.items()
        ]
        return losses, params.like(torch.cat(rows, dim=1))

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        return frozen_stages(self.network, params, x)

    def plan(self, x: Tensor, mode: ExecutionMode) -> Plan:
        """Choose if the tasks run side by side or sequentially."""
        if x.ndim != 5 or 0 in x.shape:
            raise ConfigError(
                "a stack of images must be [task, example, channel, height, width], with at least "
                f"one of each, got {list(x.shape)}."
            )
        num_tasks, num_examples, _, height, width = x.shape
        side_by_side = mode.over_tasks == "stack"
        if mode.over_tasks == "auto":
            filters = self.num_first_filters()
            side_by_side = num_examples * height * width * filters <= _MAX_SIDE_BY_SIDE
        return Plan(self.network, num_tasks if side_by_side else 1, mode.num_norm_examples)

    def num_first_filters(self) -> int:
        """Return the number of filters at full resolution, the first convolution's by default."""
        # Not `get_parameter`: inside another module, a tensor may replace the parameter.
        layer, _, weight = self.network.names[0].rpartition(".")
        return int(getattr(self.get_submodule(layer), weight).shape[0])


def image_shape(input_shape: Sequence[int], *, min_size: int, name: str) -> tuple[int, int, int]:
    """Return channels, height, and width, or raise ConfigError if the images are too small."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"the shape of one input is {list(input_shape)}, but this model takes images: "
            "channels, height, and width; use the model 'mlp' for vectors."
        )
    num_channels, height, width = input_shape
    if min(height, width) < min_size:
        raise ConfigError(
            f"images of {height} x {width} are too small for {name}, which needs "
            f"{min_size} x {min_size}; use larger images."
        )
    return num_channels, height, width


def _needs_autograd(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Return whether a loss has trained parameters or does not depend on the outputs."""
    if loss is cross_entropy or loss is mse:
        return False
    with torch.enable_grad():
        constant = loss(outputs, targets).requires_grad
        depends = loss(outputs.requires_grad_(), targets).requires_grad
    return constant or not depends


def check_slope(slope: float) -> None:
    if not 0 <= slope < 1:
        raise ConfigError(f"`slope` must be at least 0 and less than 1, got {slope}.")


def check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ConfigError(f"`dropout` must be at least 0 and less than 1, got {dropout}.")
