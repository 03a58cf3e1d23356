"""The base class of the convolutional backbones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.models._base import DEFAULT_MODE, ExecutionMode, Model, with_shared
from alfa.models._frozen import frozen_stages
from alfa.ops import Loss, Plan, cross_entropy, mse, network, network_gradients, uninitialized
from alfa.ops.stages import Chain, Conv, Linear, Norm, Stage
from alfa.types import Params

# Tasks run side by side up to this many values per image set after the first convolution. Below it
# the number of operations dominates the cost, above it their size; see docs/results/engine.md.
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

    def add_conv(
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
        """Add a convolution with batch norm and leaky ReLU, and return their stages.

        For the path ``"block.1"`` the modules are ``block.conv1`` and ``block.norm1``. Batch norm
        cancels the bias, so the stages do not use it.
        """
        parent, dot, suffix = path.rpartition(".")
        options = {"stride": stride, "padding": side // 2, "bias": bias}
        conv = uninitialized(nn.Conv2d, num_inputs, num_outputs, side, **options)
        norm = nn.BatchNorm2d(num_outputs, track_running_stats=False)
        self.get_submodule(parent).add_module(f"conv{suffix}", conv)
        self.get_submodule(parent).add_module(f"norm{suffix}", norm)
        stage = Conv(f"{parent}{dot}conv{suffix}", stride=stride)
        return stage, Norm(f"{parent}{dot}norm{suffix}", size=pool, slope=slope)

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
            # Not `get_parameter`: inside another module, a tensor may replace the parameter.
            layer, _, weight = self.network.names[0].rpartition(".")
            filters = getattr(self.get_submodule(layer), weight).shape[0]
            side_by_side = num_examples * height * width * filters <= _MAX_SIDE_BY_SIDE
        return Plan(self.network, num_tasks if side_by_side else 1, mode.num_norm_examples)


def _needs_autograd(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Return whether a loss has trained parameters or does not depend on the outputs."""
    if loss is cross_entropy or loss is mse:
        return False
    with torch.enable_grad():
        constant = loss(outputs, targets).requires_grad
        depends = loss(outputs.requires_grad_(), targets).requires_grad
    return constant or not depends
