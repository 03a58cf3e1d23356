"""Matching networks: attention over the support set."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from alfa.models._heads import Head, register_head
from alfa.types import Count


@register_head("matching")
class Matching(Head):
    """Matching networks without full context embeddings (Vinyals et al., 2016).

    The logit of a class is the sum of the cosines between the query and the support examples of the
    class. As in the published code of Ravi and Larochelle (2017), cross-entropy takes these sums as
    logits, without a softmax over the support set.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes in the shape of the parameters; tasks may have any number.

    Examples:
        >>> import torch
        >>> from alfa.models import Matching
        >>> head = Matching((4,), 2)
        >>> z, y = torch.eye(4)[None], torch.tensor([[0, 0, 1, 1]])
        >>> head.fit(z, y, 2)["weight"]
        tensor([[[1., 1., 0., 0.],
                 [0., 0., 1., 1.]]])
    """

    task_parameters = ("weight",)

    def __init__(self, feature_shape: Sequence[int], num_outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_outputs, prod(feature_shape)))

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        # The sum over the examples of a class, because the cosine is linear in unit vectors
        return {"weight": one_hot(y, way).to(z.dtype).mT @ normalize(z, dim=-1)}

    def forward(self, z: Tensor) -> Tensor:
        return normalize(z, dim=-1) @ self.weight.mT


@register_head("matching-fce")
class MatchingFCE(Head):
    """Matching networks with full context embeddings (Vinyals et al., 2016, appendix A).

    A bidirectional LSTM embeds the support examples in the context of the support set:
    g(x_i) = g'(x_i) + h_i (forward) + h_i (backward), with the features g'. An LSTM that reads the
    support set embeds a query with the features f'. In each of `num_reads` steps,

    - r = sum_i a_i g(x_i), with a = softmax(h^T g(x_i)),
    - h, c = LSTM([f', r], [h, c]), and then h <- h + f'.

    The first h is zero, so that the first read is the mean. The logit of a class is the sum of the
    cosines between the last h and g(x_i) of its support examples, as in `Matching`. Logits depend
    on the order of the support set.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes in the shape of the parameters; tasks may have any number.
        num_reads: number of steps of the LSTM of the queries.

    Examples:
        >>> import torch
        >>> from alfa.models import MatchingFCE
        >>> head = MatchingFCE((4,), 2)
        >>> fitted = head.fit(torch.randn(3, 6, 4), torch.arange(2).repeat(3, 3), 2)
        >>> fitted["support"].shape, fitted["labels"].shape
        (torch.Size([3, 6, 4]), torch.Size([3, 6, 2]))
    """

    task_parameters = ("support", "labels")

    def __init__(
        self, feature_shape: Sequence[int], num_outputs: int, *, num_reads: Count = 3
    ) -> None:
        super().__init__()
        size = prod(feature_shape)
        self.num_reads = num_reads
        self.support = nn.Parameter(torch.zeros(num_outputs, size))
        self.labels = nn.Parameter(torch.eye(num_outputs))
        self.support_lstm = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.query_lstm = nn.LSTMCell(2 * size, size)

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        forward, backward = self.support_lstm(z)[0].chunk(2, dim=-1)
        return {"support": z + forward + backward, "labels": one_hot(y, way).to(z.dtype)}

    def forward(self, z: Tensor) -> Tensor:
        h, c = torch.zeros_like(z), torch.zeros_like(z)
        for _ in range(self.num_reads):
            r = (h @ self.support.mT).softmax(1) @ self.support
            h, c = self.query_lstm(torch.cat([z, r], dim=1), (h, c))
            h = h + z
        return normalize(h, dim=-1) @ normalize(self.support, dim=-1).mT @ self.labels
