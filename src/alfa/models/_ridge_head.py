"""The head of the photo classifier: ridge regression in which classes weigh equally."""

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.types import PositiveFloat

# The candidate ratios of the squared norms of the second and the third group to that of the first
# group, and the constants of their prior.
_RATIOS = ((0.0, 0.1, 0.3, 1.0), (0.1, 0.3, 1.0, 3.0))
_PRIOR, _PRIOR_SCALE = 0.1, 0.05
# More examples hardly change the choice of the ratios, but cost cubic time.
_MOST_EXAMPLES = 400


@register_head("ridge")
class RidgeRegression(Head):
    """Ridge regression from features of norm 1 to one-hot labels, with equally weighted classes.

    With z the feature divided by its norm, the outputs are s (W z + b), in which W and b minimize
    sum_i w_i |W z_i + b - e_{y_i}|^2 + lambda |W|^2 over the support set. The weights w_i are
    inversely proportional to the number n_k of examples of a class, and the total weight of each
    class is the harmonic mean of these numbers. A class with more examples would still be favored,
    because W fits a larger part of its features. The shift of b that removes this makes the mean
    output of each class over left-out examples, in which classes weigh equally, 1 / way. It is
    multiplied by 1 - min n_k / max n_k, so equal numbers need none, and it is zero if a class has
    one example, which cannot be left out. The outputs for left-out examples follow from the
    diagonal of the hat matrix.

    With three groups of features, each group is divided by its own norm, and the support set
    determines the ratios r of the groups' squared norms. Ridge regression is the mean of a
    Gaussian process, whose log marginal likelihood of one output,
    -(m / 2) log(q) - (1 / 2) log det(K_r + lambda I), minus 0.1 sum log(1 + r / 0.05) is largest
    for the chosen ratios. K_r contains the weighted products of the centered features, m is the
    number of examples minus 1, and q, the variance, is the mean of e^T (K_r + lambda I)^-1 e over
    the outputs and m.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes.
        regularization: lambda.
        scale: s, which turns the outputs, about 0 to 1, into logits.
        groups: the sizes of three groups of features; empty for one group.

    Examples:
        >>> import torch
        >>> from alfa.models import RidgeRegression
        >>> head = RidgeRegression((8,), 5)
        >>> head.fit(torch.randn(2, 10, 8), torch.arange(10).expand(2, -1) % 5, 5)["weight"].shape
        torch.Size([2, 5, 8])
    """

    task_parameters = ("weight", "bias")

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        regularization: PositiveFloat = 0.1,
        scale: PositiveFloat = 10.0,
        groups: Sequence[int] = (),
    ) -> None:
        super().__init__()
        for name, value in (("regularization", regularization), ("scale", scale)):
            if not value > 0:
                raise ConfigError(f"`{name}` must be above 0, got {value}.")
        size = math.prod(feature_shape)
        if groups and (len(groups) != 3 or min(groups) < 1 or sum(groups) != size):
            raise ConfigError(
                f"`groups` must be three positive numbers with the sum {size}, the number of "
                f"features, or empty, got {list(groups)}."
            )
        self.regularization, self.scale = regularization, scale
        self.groups = list(groups) or [size]
        self.weight = nn.Parameter(torch.zeros(num_outputs, size))
        self.bias = nn.Parameter(torch.zeros(num_outputs))

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        z, targets = self._normalized(z), F.one_hot(y, way).to(z.dtype)
        counts = targets.sum(1, keepdim=True)
        if bool((counts == 0).any()):
            task, _, missing = (counts == 0).nonzero()[0].tolist()
            raise ConfigError(
                f"the support set of task {task} has no example of class {missing}, but ridge "
                f"regression needs at least one; number the classes of a task from 0 to {way - 1}."
            )
        w = (targets / counts).sum(2, keepdim=True) * (way / (1 / counts).sum(2, keepdim=True))
        total = w.sum(1, keepdim=True)
        # The optimal b makes the weighted mean of the residuals zero.
        z_mean, target_mean = ((w * x).sum(1, keepdim=True) / total for x in (z, targets))
        root = w.sqrt()
        a, e = root * (z - z_mean), root * (targets - target_mean)
        factors = self._factors(a, e)
        a, z, z_mean = a * factors, z * factors, z_mean * factors
        # W^T = A^T (A A^T + lambda I)^-1 E needs a matrix of the size of the support set only.
        gram = a @ a.mT
        eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        solved = torch.linalg.solve(gram + self.regularization * eye, torch.cat([e, gram], dim=2))
        weight = (a.mT @ solved[..., :way]).mT
        bias = target_mean - z_mean @ weight.mT
        # Without example i, its residual is larger by the factor 1 / (1 - h_ii).
        h = solved[..., way:].diagonal(dim1=1, dim2=2).unsqueeze(2) + w / total
        left_out = targets - (targets - z @ weight.mT - bias) / (1 - h).clamp(min=1e-6)
        mean = (targets / counts).mT @ left_out
        fewest = counts.amin(2, keepdim=True)
        strength = (1 - fewest / counts.amax(2, keepdim=True)) * (fewest > 1)
        bias = bias + strength * (1 / way - mean.mean(1, keepdim=True))
        # The outputs are linear in the groups, so the factors are a part of the weights.
        return {"weight": self.scale * weight * factors, "bias": self.scale * bias.squeeze(1)}

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(self._normalized(z), self.weight, self.bias)

    def _normalized(self, z: Tensor) -> Tensor:
        parts = z.split(self.groups, dim=-1)
        return torch.cat([F.normalize(part, dim=-1) for part in parts], dim=-1)

    def _factors(self, a: Tensor, e: Tensor) -> Tensor:
        """Return the factor of each feature, ``[task, 1, feature]``.

        Args:
            a: centered features, ``[task, support, feature]``.
            e: centered targets, ``[task, support, class]``.
        """
        sizes = torch.tensor(self.groups, device=a.device)
        if len(self.groups) == 1:
            return a.new_ones(1, 1, int(sizes[0]))
        step = -(-a.shape[1] // _MOST_EXAMPLES)
        a, e = a[:, ::step].detach(), e[:, ::step].detach()
        products = [part @ part.mT for part in a.split(self.groups, dim=2)]
        eye = torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
        candidates, scores = [], []
        for ratios in itertools.product((1.0,), *_RATIOS):
            shares = torch.tensor(ratios, dtype=a.dtype, device=a.device) / sum(ratios)
            k = sum(share * product for share, product in zip(shares, products, strict=True))
            root = torch.linalg.cholesky(k + self.regularization * eye)
            solved = torch.linalg.solve_triangular(root, e, upper=False)
            m = a.shape[1] - 1
            q = solved.square().sum((1, 2)) / (m * e.shape[2])
            log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
            prior = _PRIOR * sum(math.log1p(ratio / _PRIOR_SCALE) for ratio in ratios[1:])
            scores.append(-0.5 * (m * q.log() + log_det) - prior)
            candidates.append(shares.sqrt())
        best = torch.stack(scores).argmax(0)
        return torch.stack(candidates)[best].repeat_interleave(sizes, dim=1).unsqueeze(1)
