"""The 4-CONV backbone of the paper's supplement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._base import Model, register_model
from alfa.ops import Loss, Norms, conv_gradients, cross_entropy, norm_pool_act
from alfa.types import Count, Params


@register_model("conv4")
class Conv4(Model):
    """Blocks of 3 x 3 convolution, batch norm, leaky ReLU and 2 x 2 max pool, then a linear layer.

    Batch norm uses the statistics of the batch at hand; its gamma and beta are meta-learned, not
    adapted by default.

    Args:
        input_shape: channels, height and width of an image.
        num_outputs: classes.
        filters: of every convolution.
        num_blocks: how many blocks; each halves height and width.
        generator: source of the random weights.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Count = 48,
        num_blocks: Count = 4,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_channels, height, width = input_shape
        if min(height, width) < 2**num_blocks:
            raise ConfigError(
                f"images of {height} x {width} are too small for {num_blocks} blocks, which need "
                f"{2**num_blocks} x {2**num_blocks}; use larger images or fewer blocks."
            )
        self.num_blocks = num_blocks
        for block in range(1, num_blocks + 1):
            fan_in = num_channels if block == 1 else filters
            conv = nn.utils.skip_init(nn.Conv2d, fan_in, filters, 3, padding=1)
            self.add_module(f"conv{block}", conv)
            self.add_module(f"norm{block}", nn.BatchNorm2d(filters, track_running_stats=False))
        features = filters * (height >> num_blocks) * (width >> num_blocks)
        self.linear = nn.utils.skip_init(nn.Linear, features, num_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                assert module.bias is not None
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def stacked(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        tasks = [{name: p[task] for name, p in params.items()} for task in range(x.shape[0])]
        return torch.stack([self._one(own, x[task]) for task, own in enumerate(tasks)])

    def _one(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        a = x.contiguous(memory_format=torch.channels_last)
        for block in range(1, self.num_blocks + 1):
            z = F.conv2d(a, params[f"conv{block}.weight"], params[f"conv{block}.bias"], padding=1)
            a = norm_pool_act(z, params[f"norm{block}.weight"], params[f"norm{block}.bias"])
        return F.linear(a.flatten(1), params["linear.weight"], params["linear.bias"])

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
    ) -> tuple[Tensor, Params] | None:
        norms = [f"norm{block}" for block in range(1, self.num_blocks + 1)]
        convs = [f"conv{block}" for block in range(1, self.num_blocks + 1)]
        layers = [f"{name}.{part}" for name in (*convs, "linear") for part in ("weight", "bias")]
        if loss is not cross_entropy or list(params) != layers:
            return None
        own = Norms(
            [shared[f"{name}.weight"] for name in norms], [shared[f"{name}.bias"] for name in norms]
        )
        shapes = list(params.layers.values())
        losses, gradient = conv_gradients(x, targets, params.flat, own, shapes)
        return losses, params.like(gradient)
