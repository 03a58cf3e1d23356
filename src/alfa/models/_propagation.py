"""TPN: labels propagate through a graph of support and query examples."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.types import Count, NonNegativeFloat


@register_head("label-propagation")
class LabelPropagation(Head):
    """Transductive propagation network: labels spread over a graph (Liu et al., 2019).

    A network of two convolutional blocks and two linear layers computes a scale sigma of each
    example. The support examples and all queries of a task are the nodes of a graph with

    - weights W_ij = exp(-d_ij / 2), with d_ij the mean of (z_i / sigma_i - z_j / sigma_j)^2 over
      features, as in the published code, and zero unless i or j is one of the other's
      `num_neighbors` nearest nodes, which include the node itself;
    - S = D^-1/2 W D^-1/2, with the row sums D of W;
    - F = (I - alpha S)^-1 Y, with the one-hot labels Y of the support set and zeros for queries.

    The logits are the rows of F of the queries. The classification of a query depends on the other
    queries of its task.

    Args:
        feature_shape: channels, height, and width of the features of one example, or their number.
        num_outputs: number of classes in the shape of the parameters; tasks may have any number.
        num_neighbors: number of nearest nodes of each node; all nodes if there are fewer.
        alpha: the weight of the neighbors' labels, below 1.
        filters: number of filters of the first convolution.
        hidden: number of units of the first linear layer.

    Examples:
        >>> import torch
        >>> from alfa.models import LabelPropagation
        >>> head = LabelPropagation((4, 5, 5), 2)
        >>> head(torch.randn(7, 100)).shape
        torch.Size([7, 2])
    """

    task_parameters = ("support", "labels")
    is_transductive = True

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        num_neighbors: Count = 20,
        alpha: NonNegativeFloat = 0.99,
        filters: Count = 64,
        hidden: Count = 8,
    ) -> None:
        super().__init__()
        if not 0 <= alpha < 1:
            raise ConfigError(f"`alpha` must be at least 0 and below 1, got {alpha}.")
        self.num_neighbors, self.alpha = num_neighbors, alpha
        # A vector is a map of one pixel.
        self.map_shape = (*feature_shape, 1, 1)[:3]
        size = prod(feature_shape)
        self.support = nn.Parameter(torch.zeros(num_outputs, size))
        self.labels = nn.Parameter(torch.eye(num_outputs))
        blocks: list[nn.Module] = []
        for num_inputs, num_filters in ((self.map_shape[0], filters), (filters, 1)):
            norm = nn.BatchNorm2d(num_filters, track_running_stats=False)
            # Batch norm would cancel a bias.
            conv = nn.Conv2d(num_inputs, num_filters, 3, padding=1, bias=False)
            blocks += [conv, norm, nn.ReLU(), nn.MaxPool2d(2, padding=1)]
        # Each block maps a side of n to floor(n / 2) + 1.
        num_pixels = prod((side // 2 + 1) // 2 + 1 for side in self.map_shape[1:])
        linear = nn.Linear(num_pixels, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        self.sigma = nn.Sequential(*blocks, nn.Flatten(), *linear)

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        return {"support": z, "labels": one_hot(y, way).to(z.dtype)}

    def forward(self, z: Tensor) -> Tensor:
        nodes = torch.cat([self.support, z])
        sigma = self.sigma(nodes.unflatten(1, self.map_shape))
        w = self._weights(nodes / (sigma + torch.finfo(z.dtype).eps))
        # S = D^-1/2 W D^-1/2
        root = w.sum(1).rsqrt()
        s = root.unsqueeze(1) * w * root
        # F = (I - alpha S)^-1 Y
        y = torch.cat([self.labels, z.new_zeros(len(z), self.labels.shape[1])])
        identity = torch.eye(len(nodes), dtype=z.dtype, device=z.device)
        f: Tensor = torch.linalg.solve(identity - self.alpha * s, y)
        return f[len(self.support) :]

    def _weights(self, scaled: Tensor) -> Tensor:
        """Return W of scaled features ``[node, feature]``."""
        scaled = scaled / scaled.shape[1] ** 0.5
        squares = scaled.square().sum(1)
        distances = squares.unsqueeze(1) + squares - 2 * scaled @ scaled.mT
        w = (-distances.clamp_min(0) / 2).exp()
        nearest = w.topk(min(self.num_neighbors, len(w)), dim=1).indices
        is_near = torch.zeros_like(w).scatter(1, nearest, 1).bool()
        return w * (is_near | is_near.mT)
