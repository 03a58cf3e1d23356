"""Relation networks: a learned comparison of feature maps."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.types import Count, NonNegativeInt


@register_head("relation")
class Relation(Head):
    """Relation networks: a convolutional network compares queries with classes (Sung et al., 2018).

    The feature maps of a class are the sum over its support examples. The maps of the class and of
    a query, concatenated, pass through two blocks of 3 x 3 convolution, batch norm, ReLU, and 2 x 2
    max pooling, a linear layer with ReLU, and a linear layer with a sigmoid. The results are scores
    from 0 to 1, for the loss ``"squared_one_hot"``. Batch norm normalizes all pairs of a query set
    together or, if it is inductive, by the statistics of the pairs of the support set. The initial
    weights are drawn as in the published code.

    Args:
        feature_shape: channels, height, and width of the features of one example.
        num_outputs: number of classes in the shape of the parameters; tasks may have any number.
        filters: number of filters of both convolutions.
        hidden: number of units of the first linear layer.
        padding: padding of both convolutions. The published code uses 0 for miniImageNet, with maps
            of 19 x 19, and 1 for Omniglot.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa.models import Relation
        >>> head = Relation((4, 5, 5), 2)
        >>> head(torch.randn(7, 100)).shape
        torch.Size([7, 2])

    Raises:
        ConfigError: the features are not maps, or the maps are too small.
    """

    task_parameters = ("sums",)

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        filters: Count = 64,
        hidden: Count = 8,
        padding: NonNegativeInt = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.feature_shape = tuple(feature_shape)
        sides = [((side - 2 + 2 * padding) // 2 - 2 + 2 * padding) // 2 for side in feature_shape]
        if len(feature_shape) != 3 or min(sides[1:]) < 1:
            smallest = next(
                s for s in range(1, 99) if (s + 2 * padding - 2) // 2 >= 4 - 2 * padding
            )
            raise ConfigError(
                f"a relation network with `padding` {padding} compares feature maps of at least "
                f"{smallest} x {smallest}, but the features have the shape {list(feature_shape)}; "
                "use larger images, or a backbone with fewer pooling layers, such as conv4 with "
                "`num_pools` 2."
            )
        self.sums = nn.Parameter(torch.zeros(num_outputs, prod(feature_shape)))
        blocks: list[nn.Module] = []
        for num_inputs in (2 * feature_shape[0], filters):
            norm = nn.BatchNorm2d(filters, track_running_stats=False)
            # Batch norm would cancel a bias.
            conv = nn.Conv2d(num_inputs, filters, 3, padding=padding, bias=False)
            blocks += [conv, norm, nn.ReLU(), nn.MaxPool2d(2)]
        linear = nn.Linear(filters * sides[1] * sides[2], hidden), nn.Linear(hidden, 1)
        self.comparator = nn.Sequential(
            *blocks, nn.Flatten(), linear[0], nn.ReLU(), linear[1], nn.Sigmoid()
        )
        for part in self.comparator:
            if isinstance(part, nn.Conv2d):
                std = (2 / (9 * filters)) ** 0.5
                nn.init.normal_(part.weight, 0, std, generator=generator)
            elif isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, 0, 0.01, generator=generator)
                nn.init.ones_(part.bias)

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        return {"sums": one_hot(y, way).to(z.dtype).mT @ z}

    def forward(self, z: Tensor) -> Tensor:
        # Not `len`, which would fix the number of examples of an exported model
        way, num_examples = self.sums.shape[0], z.shape[0]
        sums = self.sums.expand(num_examples, -1, -1).unflatten(2, self.feature_shape)
        queries = z.unsqueeze(1).expand(-1, way, -1).unflatten(2, self.feature_shape)
        pairs = torch.cat([sums, queries], dim=2).flatten(0, 1)
        scores: Tensor = self.comparator(pairs)
        return scores.reshape(num_examples, way)
