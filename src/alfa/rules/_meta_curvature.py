"""Meta-Curvature: a meta-learned linear map of each layer's gradient."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.rules._base import Rule, register_rule
from alfa.types import Params, PositiveFloat, Rates, State


class Curvature(nn.Module):
    """Multiplies the gradient of a layer by a matrix along each dimension.

    The dimensions are the outputs, the inputs, and the positions of a kernel, so a convolution has
    the matrices M_o, M_i, and M_f, and a linear layer has M_o and M_i. Their Kronecker product acts
    on the flattened gradient. The matrices of a bias, or any other vector, are diagonal.
    """

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        if len(shape) < 2:
            self.diagonal = nn.Parameter(torch.ones(shape))
        else:
            self.M_o, self.M_i = (nn.Parameter(torch.eye(size)) for size in shape[:2])
        if len(shape) > 2:
            self.M_f = nn.Parameter(torch.eye(shape[2:].numel()))
        self.num_dimensions = len(shape)

    def forward(self, g: Tensor) -> Tensor:
        """Return the direction for gradients ``[task, ...]``."""
        if self.num_dimensions < 2:
            return self.diagonal * g
        if self.num_dimensions == 2:
            return self.M_o @ g @ self.M_i.mT
        # M(g) = g x_1 M_o x_2 M_i x_3 M_f
        direction = self.M_i @ (g.flatten(3) @ self.M_f.mT)
        return (self.M_o @ direction.flatten(2)).view_as(g)


@register_rule("meta-curvature")
class MetaCurvature(Rule):
    """Gradient descent along a meta-learned linear map of the gradient (Park and Oliva, 2019).

    theta' = theta - alpha M(grad). For a convolution, M(g) = g x_1 M_o x_2 M_i x_3 M_f mixes the
    gradient over output channels, input channels, and kernel positions. M starts as the identity,
    and all inner steps share it.

    Args:
        layers: names and shapes of the adapted layers.
        learning_rate: alpha.

    Examples:
        >>> import torch
        >>> from alfa.rules import MetaCurvature
        >>> rule = MetaCurvature({"conv": torch.Size([8, 4, 3, 3]), "bias": torch.Size([8])})
        >>> {name: tuple(M.shape) for name, M in rule.curvatures[0].named_parameters()}
        {'M_o': (8, 8), 'M_i': (4, 4), 'M_f': (9, 9)}
    """

    has_fixed_layers = True

    def __init__(
        self, layers: Mapping[str, torch.Size], *, learning_rate: PositiveFloat = 0.01
    ) -> None:
        super().__init__(layers)
        if not learning_rate > 0:
            raise ConfigError(f"`learning_rate` must be greater than 0, got {learning_rate}.")
        self.learning_rate = learning_rate
        self.curvatures = nn.ModuleList(Curvature(shape) for shape in self.layers.values())

    def rates(self, step: int, params: Params, grads: Params, state: State = ()) -> Rates:
        pairs = zip(self.curvatures, grads.values(), strict=True)
        mapped = [curvature(g).reshape(len(g), -1) for curvature, g in pairs]
        alpha = params.flat.new_tensor(self.learning_rate)
        direction = grads.like(torch.cat(mapped, dim=1))
        return Rates(alpha, params.flat.new_ones(()), direction)
