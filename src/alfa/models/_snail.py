"""SNAIL: attention and temporal convolutions over the sequence of a task's examples."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.types import Count


class Attention(nn.Module):
    """Causal attention, whose reads are appended to the features (SNAIL's attention block).

    `forward` takes the features of the support sequence, ``[support, feature]``, and of queries,
    ``[query, feature]``. Each query follows the support sequence, in a sequence of its own.
    """

    def __init__(self, num_features: int, key_size: int, value_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(num_features, key_size)
        self.key = nn.Linear(num_features, key_size)
        self.value = nn.Linear(num_features, value_size)

    def forward(self, support: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.key(support), self.value(support)
        factor = keys.shape[1] ** -0.5
        logits = factor * self.query(support) @ keys.mT
        is_later = torch.ones_like(logits).triu(1).bool()
        reads = logits.masked_fill(is_later, -torch.inf).softmax(1) @ values
        # A query attends to the support sequence and itself.
        asked = factor * self.query(queries)
        own = (asked * self.key(queries)).sum(1, keepdim=True)
        weights = torch.cat([asked @ keys.mT, own], dim=1).softmax(1)
        query_reads = weights[:, :-1] @ values + weights[:, -1:] * self.value(queries)
        return torch.cat([support, reads], dim=1), torch.cat([queries, query_reads], dim=1)


class CausalConv(nn.Module):
    """A gated causal convolution, whose outputs are appended to the features (a dense block).

    The convolution has two taps, which are `dilation` apart; the arguments are as in `Attention`.
    """

    def __init__(self, num_features: int, dilation: int, filters: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.linear = nn.Linear(2 * num_features, 2 * filters)

    def forward(self, support: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        earlier = pad(support, (0, 0, self.dilation, 0))[: len(support) + 1]
        # Not `len`, which would fix the number of queries of an exported model
        last = earlier[-1:].expand(queries.shape[0], -1)
        before = torch.cat([earlier[:-1], last])
        features = torch.cat([support, queries])
        values, gates = self.linear(torch.cat([before, features], dim=1)).chunk(2, dim=1)
        outputs = torch.cat([features, values.tanh() * gates.sigmoid()], dim=1)
        return outputs[: len(support)], outputs[len(support) :]


@register_head("snail")
class SNAIL(Head):
    """Simple neural attentive learner: a causal sequence model (Mishra et al., 2018).

    A sequence consists of the support examples, features and one-hot labels, in the order of the
    support set, and one query without label. Blocks of causal attention alternate with temporal
    convolutions of dilation 2, 4, 8, ..., and a linear layer maps the last features to the logits.
    Tasks have at most `num_outputs` classes, because the labels are features.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: largest number of classes of a task.
        max_support: the number of support examples that determines the number of convolutions;
            other numbers are possible.
        filters: number of filters of each convolution.

    Examples:
        >>> import torch
        >>> from alfa.models import SNAIL
        >>> head = SNAIL((4,), 2)
        >>> head(torch.randn(7, 4)).shape
        torch.Size([7, 2])
    """

    task_parameters = ("support",)
    variable_way = False

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        max_support: Count = 25,
        filters: Count = 128,
    ) -> None:
        super().__init__()
        self.num_outputs = num_outputs
        size = prod(feature_shape) + num_outputs
        self.support = nn.Parameter(torch.zeros(num_outputs, size))
        self.blocks = nn.ModuleList()
        # ceil(log2(T)) convolutions for sequences of length T
        num_convs = max_support.bit_length()
        for key_size, value_size in ((64, 32), (256, 128), (512, 256)):
            if self.blocks:
                for number in range(1, num_convs + 1):
                    self.blocks.append(CausalConv(size, 2**number, filters))
                    size += filters
            self.blocks.append(Attention(size, key_size, value_size))
            size += value_size
        self.linear = nn.Linear(size, num_outputs)

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        if way > self.num_outputs:
            raise ConfigError(
                f"SNAIL was built for at most {self.num_outputs} classes, because labels are its "
                f"inputs, but a task has {way}; train with `way` {way}, or use another head."
            )
        return {"support": torch.cat([z, one_hot(y, self.num_outputs).to(z.dtype)], dim=2)}

    def forward(self, z: Tensor) -> Tensor:
        support, queries = self.support, pad(z, (0, self.num_outputs))
        for block in self.blocks:
            support, queries = block(support, queries)
        logits: Tensor = self.linear(queries)
        return logits
