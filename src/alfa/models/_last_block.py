"""The last block of a pretrained backbone, which tasks adapt in whole or in part."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.backbones import LAST_BLOCK_SHAPE, last_block
from alfa.errors import ConfigError, check_choice
from alfa.models._base import register_model
from alfa.ops import uninitialized
from alfa.types import Count, PositiveFloat

Part = Literal["weights", "film", "lora"]
"""The parameters of the last block: its weights, FiLM, or LoRA."""


@register_model("last-block")
class LastBlock(nn.Module):
    """The last block of EfficientNet-Lite0, and a linear layer on its features of norm `scale`.

    The inputs are the features of the backbone ``"efficientnet-lite0-body"``. All parameters are
    meta-learned, and tasks can adapt them. They are one of:

    - ``"weights"``: the weights and biases of all four convolutions.
    - ``"film"``: feature-wise linear modulation (Perez et al., 2018): the outputs y of each
      convolution become (1 + gamma) y + beta, with a number for each channel. gamma and beta start
      at 0.
    - ``"lora"``: low-rank adaptation (Hu et al., 2021): each weight matrix W of a 1 x 1 convolution
      becomes W + B A, with `rank` rows in A. B starts at 0.

    With the last two, the weights of the convolutions are constant, and weight decay pulls the
    network to the pretrained one.

    Args:
        input_shape: the shape of the inputs, ``(9408,)``.
        num_outputs: number of outputs.
        part: the parameters.
        rank: the number of rows of A.
        scale: the norm of the inputs of the last layer.
        generator: source of the random weights of A and of the last layer.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        part: Part = "film",
        rank: Count = 4,
        scale: PositiveFloat = 3.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_choice("part", part, get_args(Part))
        if tuple(input_shape) != (math.prod(LAST_BLOCK_SHAPE),):
            raise ConfigError(
                "the model 'last-block' takes the features of the backbone "
                f"'efficientnet-lite0-body', but the inputs have the shape {tuple(input_shape)}; "
                "set tasks.backbone, or use another model."
            )
        if rank < 1:
            raise ConfigError(f"`rank` must be at least 1, got {rank}.")
        convs = last_block()
        made: dict[Part, Callable[[nn.Conv2d], nn.Module]] = {
            "weights": lambda conv: conv.requires_grad_(True),
            "film": _FiLM,
            "lora": lambda conv: _LoRA(conv, rank, generator) if conv.groups == 1 else _Fixed(conv),
        }
        self.convs = nn.ModuleList([made[part](conv) for conv in convs])
        self.scale = scale
        self.linear = uninitialized(nn.Linear, convs[-1].out_channels, num_outputs)
        nn.init.xavier_uniform_(self.linear.weight, generator=generator)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        maps = x.unflatten(1, LAST_BLOCK_SHAPE)
        expand, depthwise, project, last = self.convs
        maps = project(F.relu6(depthwise(F.relu6(expand(maps)))))
        z = F.relu6(last(maps)).mean((2, 3))
        return self.linear(self.scale * F.normalize(z, dim=1))  # type: ignore[no-any-return]


class _Fixed(nn.Module):
    """A convolution with constant weights, which are not a part of checkpoints."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        assert conv.bias is not None
        self.padding, self.groups = conv.padding, conv.groups
        self.register_buffer("weight", conv.weight.detach(), persistent=False)
        self.register_buffer("bias", conv.bias.detach(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, padding=self.padding, groups=self.groups)


class _FiLM(_Fixed):
    """A convolution whose outputs are scaled and shifted."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__(conv)
        self.gamma = nn.Parameter(torch.zeros(conv.out_channels))
        self.beta = nn.Parameter(torch.zeros(conv.out_channels))

    def forward(self, x: Tensor) -> Tensor:
        gamma, beta = (p[:, None, None] for p in (self.gamma, self.beta))
        return (1 + gamma) * super().forward(x) + beta


class _LoRA(_Fixed):
    """A 1 x 1 convolution with an added matrix of low rank."""

    def __init__(self, conv: nn.Conv2d, rank: int, generator: torch.Generator | None) -> None:
        super().__init__(conv)
        self.a = nn.Parameter(torch.empty(rank, conv.in_channels, 1, 1))
        self.b = nn.Parameter(torch.zeros(conv.out_channels, rank, 1, 1))
        nn.init.normal_(self.a, std=conv.in_channels**-0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + F.conv2d(F.conv2d(x, self.a), self.b)
