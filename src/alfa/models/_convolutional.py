"""What the convolutional backbones share: how they run on a stack of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.models._base import AS_USUAL, How, Model
from alfa.models._frozen import frozen_stages
from alfa.ops import LOSSES, Loss, Plan, network, network_gradients
from alfa.ops.stages import Chain
from alfa.types import Params

# Up to this many values in an image set after the first convolution, tasks lie side by side.
# Below it the number of operations counts, above it their size; see docs/results/engine.md.
_LARGEST_SIDE_BY_SIDE = 2_000_000


class Convolutional(Model):
    """A backbone made of stages.

    Attributes:
        network: the stages, which name the parameters they use; the last is the linear layer.
        num_outputs: classes.
    """

    network: Chain
    num_outputs: int
    has_batch_norm = True
    head_name = "linear"

    def start(self, generator: torch.Generator | None) -> None:
        """Xavier-uniform weights and biases of zero."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def stacked(self, params: Mapping[str, Tensor], x: Tensor, how: How = AS_USUAL) -> Tensor:
        return network(self.plan(x, how), x, [params[name] for name in self.network.names])

    def embedded(self, params: Mapping[str, Tensor], x: Tensor, how: How = AS_USUAL) -> Tensor:
        body = Chain(*self.network.stages[:-1])
        plan = self.plan(x, how)._replace(stage=body)
        return network(plan, x, [params[name] for name in body.names])

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
        how: How = AS_USUAL,
    ) -> tuple[Tensor, Params] | None:
        num_tasks = x.shape[0]
        bias = f"{self.head_name}.bias"
        # Where autograd takes over, nobody may have looked at a layer without a graph before.
        (num_outputs,) = params.layers[bias] if bias in params.layers else shared[bias].shape
        outputs = params.flat.new_zeros(*targets.shape[:2], num_outputs)
        is_another = type(self).stacked is not Convolutional.stacked
        if is_another or _trains(loss, outputs, targets):
            return None
        everything = {**{n: p.expand(num_tasks, *p.shape) for n, p in shared.items()}, **params}
        w = [everything[name] for name in self.network.names]
        wanted = [name in params for name in self.network.names]
        losses, gradients = network_gradients(self.plan(x, how), x, targets, w, loss, wanted)
        named = dict(zip((n for n in self.network.names if n in params), gradients, strict=True))
        # What the network does not use, a bias before batch norm, has gradient zero.
        rows = [
            named[name].flatten(1) if name in named else p.new_zeros(num_tasks, p[0].numel())
            for name, p in params.items()
        ]
        return losses, params.like(torch.cat(rows, dim=1))

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        return frozen_stages(self.network, params, x)

    def plan(self, x: Tensor, how: How) -> Plan:
        """Whether the tasks lie side by side, or come one after the other."""
        if x.ndim != 5 or 0 in x.shape:
            raise ConfigError(
                f"the images of a stack of tasks have the shape {list(x.shape)}, but must be "
                "[task, example, channel, height, width], with at least one of each."
            )
        num_tasks, num_examples, _, height, width = x.shape
        side_by_side = how.over_tasks == "stack"
        if how.over_tasks == "auto":
            # Not `get_parameter`: within another module, a tensor may be in its place.
            layer, _, weight = self.network.names[0].rpartition(".")
            filters = getattr(self.get_submodule(layer), weight).shape[0]
            values = num_examples * height * width * filters
            side_by_side = values <= _LARGEST_SIDE_BY_SIDE
        return Plan(self.network, num_tasks if side_by_side else 1, how.own)


def image_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width, or a clear error."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"the shape of one input is {list(input_shape)}, but this model takes images: "
            "channels, height and width; use the model 'mlp' for vectors."
        )
    num_channels, height, width = input_shape
    return num_channels, height, width


def _trains(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether a loss has something to train, or to leave to autograd for another reason."""
    if loss in LOSSES.values():
        return False
    with torch.enable_grad():
        constant = loss(outputs, targets).requires_grad
        depends = loss(outputs.requires_grad_(), targets).requires_grad
    return constant or not depends
