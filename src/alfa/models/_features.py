"""A network on the features of a pretrained backbone."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._base import DEFAULT_MODE, ExecutionMode, Model, linear_outputs, register_model
from alfa.models._frozen import filled_linear
from alfa.ops import uninitialized
from alfa.types import Count, PositiveFloat


@register_model("features")
class FeatureMap(Model):
    """A learned linear map of the features of a pretrained backbone, and a linear layer.

    With u(x) = x / |x| and x^p = sign(x) |x|^p for each feature, the input of the last layer is
    z = s u(A u(x^p)), with a meta-learned matrix A and a meta-learned number s. A starts at the
    identity, so the untrained network classifies the backbone's own features. The parameter
    ``map.weight`` is A minus the identity, so weight decay pulls A to the identity.

    Args:
        input_shape: the number of features, as a shape of one number.
        num_outputs: number of outputs.
        power: p; 0.5 reduces the influence of a few large features, and 1 keeps the features.
        learned_map: meta-learn A; otherwise it stays the identity.
        scale: the initial s, the norm of the inputs of the last layer.
        generator: source of the random weights of the last layer.

    Examples:
        >>> import torch
        >>> from alfa.models import FeatureMap
        >>> model = FeatureMap((1280,), 5)
        >>> model(torch.rand(10, 1280)).shape
        torch.Size([10, 5])
    """

    head_name = "linear"

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        power: PositiveFloat = 0.5,
        learned_map: bool = True,
        scale: PositiveFloat = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if len(input_shape) != 1:
            raise ConfigError(
                "the model 'features' takes the features of a pretrained backbone, but the inputs "
                f"have the shape {tuple(input_shape)}; set tasks.backbone, or use another model."
            )
        for name, value in (("power", power), ("scale", scale)):
            if not value > 0:
                raise ConfigError(f"`{name}` must be greater than 0, got {value}.")
        (size,) = self.feature_shape = (int(input_shape[0]),)
        self.power = power
        self.initial_scale = float(scale)
        if learned_map:
            self.scale = nn.Parameter(torch.tensor(self.initial_scale))
            self.map = uninitialized(nn.Linear, size, size, bias=False)
            nn.init.zeros_(self.map.weight)
        self.learned_map, self._has_head = learned_map, True
        self.linear = uninitialized(nn.Linear, size, num_outputs)
        nn.init.xavier_uniform_(self.linear.weight, generator=generator)
        nn.init.zeros_(self.linear.bias)

    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        z = self.embedded(params, x, mode)
        if not self._has_head:
            return z
        return self.classify(params, z)

    def embedded(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        z = F.normalize(_signed_power(x, self.power), dim=-1)
        if self.learned_map:
            z = F.normalize(torch.baddbmm(z, z, params["map.weight"].mT), dim=-1)
            return params["scale"].view(-1, 1, 1) * z
        return self.initial_scale * z

    def classify(self, params: Mapping[str, Tensor], z: Tensor) -> Tensor:
        return linear_outputs(self.head_name, params, z)

    def remove_head(self) -> None:
        del self.linear
        self._has_head = False

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        parts: list[nn.Module] = [_Normalized(self.power)]
        if self.learned_map:
            weight = params["map.weight"]
            identity = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
            parts += [filled_linear(weight + identity, weight.new_zeros(len(weight)))]
            parts.append(_Normalized())
        scale = params["scale"] if self.learned_map else torch.tensor(self.initial_scale)
        parts.append(_Scaled(scale.to(x)))
        if self._has_head:
            parts.append(filled_linear(params["linear.weight"], params["linear.bias"]))
        return nn.Sequential(*parts).eval().requires_grad_(False)


def _signed_power(x: Tensor, power: float) -> Tensor:
    return x if power == 1 else x.sign() * x.abs().pow(power)


class _Normalized(nn.Module):
    """Powers of the features, divided by their norm."""

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(_signed_power(x, self.power), dim=-1)


class _Scaled(nn.Module):
    """A constant factor."""

    scale: Tensor

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale
