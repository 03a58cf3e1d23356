"""The head of the photo classifier: ridge regression with several similarities of photos."""

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.models._heads import Head, register_head
from alfa.models._ridge_head import Problem
from alfa.types import PositiveFloat

# The candidate ratios r_2 and r_3, the constants of their priors, and the fixed ratio r_4.
_RATIOS = ((0.0, 0.1, 0.3, 1.0), (0.0, 0.3, 1.0, 3.0))
_PRIORS, _PRIOR_SCALE = (0.2, 0.1), 0.05
_LOCAL, _WIDTH = 0.15, 0.1
# More examples hardly change the choice of the ratios, but cost cubic time.
_MOST_EXAMPLES = 400


@register_head("kernel-ridge")
class KernelRidge(Head):
    """Kernel ridge regression on three groups of features, with equally weighted classes.

    With z_1, z_2, and z_3 the groups of features, each divided by its norm, the similarity of two
    examples is k(x, x') = sum_g r_g z_g^T z'_g + r_4 exp((z_3^T z'_3 - 1) / 0.1), divided by the
    sum of the ratios r. The last part is large only for almost equal examples. Everything else is
    as in `RidgeRegression`, which is the special case of one group.

    Here, r_1 = 1 and r_4 = 0.15, and the support set determines r_2 and r_3. Ridge regression is
    the mean of a Gaussian process. The chosen ratios maximize its log marginal likelihood of one
    output, -(m / 2) log(q) - (1 / 2) log det(K + lambda I), plus the log of their prior,
    -0.2 log(1 + r_2 / 0.05) - 0.1 log(1 + r_3 / 0.05). K contains the weighted similarities after
    centering, m is the number of examples minus 1, and q, the variance, is the mean of
    e^T (K + lambda I)^-1 e over the outputs and m.

    Args:
        feature_shape: the shape of the features of one example.
        num_outputs: number of classes.
        groups: the sizes of the three groups of features.
        regularization: lambda.
        scale: turns the outputs, about 0 to 1, into logits.

    Examples:
        >>> import torch
        >>> from alfa.models import KernelRidge
        >>> head = KernelRidge((8,), 5, groups=[4, 2, 2])
        >>> found = head.fit(torch.randn(2, 10, 8), torch.arange(10).expand(2, -1) % 5, 5)
        >>> found["weight"].shape, found["dual"].shape
        (torch.Size([2, 5, 8]), torch.Size([2, 5, 10]))
    """

    task_parameters = ("weight", "bias", "examples", "dual")

    def __init__(
        self,
        feature_shape: Sequence[int],
        num_outputs: int,
        *,
        groups: Sequence[int],
        regularization: PositiveFloat = 0.1,
        scale: PositiveFloat = 10.0,
    ) -> None:
        super().__init__()
        for name, value in (("regularization", regularization), ("scale", scale)):
            if not value > 0:
                raise ConfigError(f"`{name}` must be above 0, got {value}.")
        size = math.prod(feature_shape)
        if len(groups) != 3 or min(groups) < 1 or sum(groups) != size:
            raise ConfigError(
                f"`groups` must be three positive numbers with the sum {size}, the number of "
                f"features, got {list(groups)}."
            )
        self.groups, self.regularization, self.scale = list(groups), regularization, scale
        self.weight = nn.Parameter(torch.zeros(num_outputs, size))
        self.bias = nn.Parameter(torch.zeros(num_outputs))
        self.examples = nn.Parameter(torch.zeros(1, groups[2]))
        self.dual = nn.Parameter(torch.zeros(num_outputs, 1))

    def fit(self, z: Tensor, y: Tensor, way: int) -> Mapping[str, Tensor]:
        parts = self._parts(z)
        problem = Problem.of(y, way, z.dtype)
        kernels = [part @ part.mT for part in parts]
        kernels.append(_local(kernels[2]))
        grams = [problem.centered(kernel) for kernel in kernels]
        shares = self._shares(grams, problem.e)
        k, gram = (
            sum(share * part for share, part in zip(shares, own, strict=True))
            for own in (kernels, grams)
        )
        alpha, bias = problem.solve(k, gram, self.regularization)
        alpha = self.scale * alpha
        linear = zip(shares[:3], parts, strict=True)
        return {
            "weight": torch.cat([alpha.mT @ (share * part) for share, part in linear], dim=2),
            "bias": self.scale * bias,
            "examples": parts[2],
            "dual": (shares[3] * alpha).mT,
        }

    def forward(self, z: Tensor) -> Tensor:
        parts = self._parts(z)
        similar = _local(parts[2] @ self.examples.mT)
        return F.linear(torch.cat(parts, dim=-1), self.weight, self.bias) + similar @ self.dual.mT

    def _parts(self, z: Tensor) -> list[Tensor]:
        return [F.normalize(part, dim=-1) for part in z.split(self.groups, dim=-1)]

    def _shares(self, grams: Sequence[Tensor], e: Tensor) -> Tensor:
        """Return the chosen ratios divided by their sum, ``[kernel, task, 1, 1]``."""
        step = -(-e.shape[1] // _MOST_EXAMPLES)
        own = torch.stack([gram[:, ::step, ::step] for gram in grams]).detach()
        e = e[:, ::step].detach()
        m = e.shape[1] - 1
        eye = torch.eye(m + 1, dtype=e.dtype, device=e.device)
        candidates, scores = [], []
        for chosen in itertools.product(*_RATIOS):
            ratios = e.new_tensor((1.0, *chosen, _LOCAL))
            shares = ratios / ratios.sum()
            k = torch.einsum("g,gtij->tij", shares, own)
            root = torch.linalg.cholesky(k + self.regularization * eye)
            solved = torch.linalg.solve_triangular(root, e, upper=False)
            q = solved.square().sum((1, 2)) / (m * e.shape[2])
            log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
            prior = zip(_PRIORS, chosen, strict=True)
            penalty = sum(c * math.log1p(ratio / _PRIOR_SCALE) for c, ratio in prior)
            scores.append(-0.5 * (m * q.log() + log_det) - penalty)
            candidates.append(shares)
        best = torch.stack(scores).argmax(0)
        return torch.stack(candidates)[best].mT[..., None, None]


def _local(products: Tensor) -> Tensor:
    """Return a similarity that is large only for almost equal unit vectors."""
    return ((products - 1) / _WIDTH).exp()
