"""The convolutional backbones: Conv4, ResNet12, and ResNet18."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError, check_choice
from alfa.models._base import DEFAULT_MODE, ExecutionMode, Model, register_model, with_shared
from alfa.models._frozen import frozen_stages
from alfa.ops import Loss, Plan, cross_entropy, mse, network, network_gradients, uninitialized
from alfa.ops.stages import (
    Chain,
    Conv,
    Flatten,
    GlobalPool,
    Linear,
    MaxPool,
    Norm,
    Pool,
    Split,
    Stage,
    Sum,
)
from alfa.types import Count, Params

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
        feature_shape: Sequence[int],
        num_outputs: int,
        generator: torch.Generator | None,
    ) -> None:
        """Add the linear layer, draw Xavier-uniform weights, and set all biases to zero."""
        self.feature_shape = tuple(feature_shape)
        self.linear: nn.Module = uninitialized(nn.Linear, math.prod(feature_shape), num_outputs)
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
            # Not `get_parameter`: inside another module, a tensor may replace the parameter.
            layer, _, weight = self.network.names[0].rpartition(".")
            filters = getattr(self.get_submodule(layer), weight).shape[0]
            side_by_side = num_examples * height * width * filters <= _MAX_SIDE_BY_SIDE
        return Plan(self.network, num_tasks if side_by_side else 1, mode.num_norm_examples)


@register_model("conv4")
class Conv4(Convolutional):
    """Blocks of 3 x 3 convolution, batch norm, leaky ReLU, and 2 x 2 max pool, and a linear layer.

    The 4-CONV backbone of the paper's supplement. Batch norm uses the statistics of the current
    batch; its gamma and beta are meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each convolution.
        num_blocks: number of blocks; each halves height and width.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa import Conv4
        >>> model = Conv4((3, 32, 32), 5)
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
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
        name = f"a Conv4 of {num_blocks} blocks"
        num_channels, height, width = _image_shape(input_shape, min_size=2**num_blocks, name=name)
        self.num_blocks = num_blocks
        stages: list[Stage] = []
        for block in range(1, num_blocks + 1):
            fan_in = num_channels if block == 1 else filters
            stages += self.add_conv(f"{block}", fan_in, filters, 3, slope=0.01, pool=2, bias=True)
        feature_shape = filters, height >> num_blocks, width >> num_blocks
        self.build([*stages, Flatten()], feature_shape, num_outputs, generator)


class _Residual(Convolutional):
    """A backbone of residual blocks."""

    def add_block(
        self,
        name: str,
        num_inputs: int,
        num_outputs: int,
        num_convs: int,
        *,
        stride: int = 1,
        has_conv_shortcut: bool = True,
        num_parts: int = 1,
    ) -> Stage:
        """Add 3 x 3 convolutions and a shortcut, and return their sum, without its ReLU."""
        self.add_module(name, nn.Module())

        def conv(part: str, fan_in: int, side: int, slope: float, stride: int) -> Chain:
            path = f"{name}.{part}"
            conv, norm = self.add_conv(path, fan_in, num_outputs, side, slope=slope, stride=stride)
            return Chain(conv, Split(norm, num_parts) if num_parts > 1 else norm)

        main = [conv("1", num_inputs, 3, 0.0, stride)]
        for number in range(2, num_convs + 1):
            slope = 1.0 if number == num_convs else 0.0
            main.append(conv(f"{number}", num_outputs, 3, slope, 1))
        # An empty chain returns its input.
        shortcut = conv("_shortcut", num_inputs, 1, 1.0, stride) if has_conv_shortcut else Chain()
        return Sum(Chain(*main), shortcut)


@register_model("resnet12")
class ResNet12(_Residual):
    """Four residual blocks of three 3 x 3 convolutions, the mean over the image, a linear layer.

    Convolutions have no bias. Batch norm follows every convolution, and ReLU the first two of a
    block. The shortcut is a 1 x 1 convolution with batch norm; ReLU and 2 x 2 max pooling follow
    the sum. Batch norm uses the statistics of the current batch; its gamma and beta are
    meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each of the four blocks.
        pooling: ``"four"`` pools after all blocks, as in the paper; ``"three"`` pools after the
            first three, with a padding of 1 in the third, as in the published code.
        device_parts: number of parts of consecutive images that batch norm normalizes separately,
            as the published code does on several devices; only for the supplement's Table A.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa import ResNet12
        >>> model = ResNet12((3, 32, 32), 5, filters=[8, 16, 32, 64])
        >>> model(torch.zeros(10, 3, 32, 32)).shape
        torch.Size([10, 5])
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"pooling": "four"},
        "paper": {"pooling": "four"},
        "published-code": {"pooling": "three"},
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Sequence[Count] = (64, 128, 256, 512),
        pooling: Literal["four", "three"] = "four",
        device_parts: Count = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("four", "three"))
        min_size = 16 if pooling == "four" else 4
        num_channels, _, _ = _image_shape(input_shape, min_size=min_size, name="this ResNet12")
        _check_filters(filters)
        self.device_parts = device_parts
        stages: list[Stage] = []
        for number, outputs in enumerate(filters, start=1):
            block = f"block{number}"
            stages.append(self.add_block(block, num_channels, outputs, 3, num_parts=device_parts))
            padding = 1 if number == 3 and pooling == "three" else 0
            size = 1 if number == 4 and pooling == "three" else 2
            stages.append(Pool(size=size, padding=padding))
            num_channels = outputs
        self.build([*stages, GlobalPool()], [num_channels], num_outputs, generator)

    def plan(self, x: Tensor, mode: ExecutionMode) -> Plan:
        if self.device_parts > 1 and mode.num_norm_examples is not None:
            raise ConfigError(
                "`device_parts` splits the images that are normalized together, but batch norm "
                "'inductive' normalizes by the whole support set; leave one of them out."
            )
        return super().plan(x, mode)


@register_model("resnet18")
class ResNet18(_Residual):
    """A 7 x 7 convolution and max pooling, four groups of two residual blocks, a linear layer.

    The backbone of Meta-Dataset. A block is two 3 x 3 convolutions with batch norm, and ReLU
    between them and after the sum. The first block of each group has a 1 x 1 convolution with batch
    norm as its shortcut, and in the last three groups it halves height and width (He et al., 2016,
    but with a convolution in the first shortcut, too, as in Triantafillou et al., 2020).
    Convolutions have no bias. Batch norm uses the statistics of the current batch; its gamma and
    beta are meta-learned, but not adapted by default.

    Args:
        input_shape: channels, height, and width of an image.
        num_outputs: number of classes.
        filters: number of filters of each of the four groups; the first convolution has the first
            group's.
        generator: source of the random weights.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        filters: Sequence[Count] = (64, 128, 256, 512),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_channels, _, _ = _image_shape(input_shape, min_size=16, name="ResNet18")
        _check_filters(filters)
        stem = self.add_conv("1", num_channels, filters[0], 7, stride=2)
        stages: list[Stage] = [Chain(*stem), MaxPool()]
        for group, (fan_in, outputs) in enumerate(pairwise((filters[0], *filters)), start=1):
            stride = 1 if group == 1 else 2
            stages += [
                self.add_block(f"block{group}a", fan_in, outputs, 2, stride=stride),
                Pool(size=1),
            ]
            second = self.add_block(f"block{group}b", outputs, outputs, 2, has_conv_shortcut=False)
            stages += [second, Pool(size=1)]
        self.build([*stages, GlobalPool()], [filters[-1]], num_outputs, generator)


def _image_shape(input_shape: Sequence[int], *, min_size: int, name: str) -> tuple[int, int, int]:
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


def _check_filters(filters: Sequence[int]) -> None:
    if len(filters) != 4 or min(filters) < 1:
        raise ConfigError(f"`filters` must be four numbers of at least 1, got {list(filters)}.")


def _needs_autograd(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Return whether a loss has trained parameters or does not depend on the outputs."""
    if loss is cross_entropy or loss is mse:
        return False
    with torch.enable_grad():
        constant = loss(outputs, targets).requires_grad
        depends = loss(outputs.requires_grad_(), targets).requires_grad
    return constant or not depends
