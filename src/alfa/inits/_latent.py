"""LEO's init: a last layer that is decoded from an adapted latent code of each class."""

import copy
import itertools
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits._base import Support, register_init
from alfa.inits._heads import TaskHead
from alfa.inits._inits import Patterns
from alfa.ops import uninitialized
from alfa.types import Count, Params, PositiveFloat

# The least standard deviation of a code or a weight.
_LEAST_DEVIATION = 1e-10
# The least mean norm of features to divide by.
_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class LatentCodes:
    """The codes of the classes of a stack of tasks.

    Attributes:
        first: the codes before the latent steps, ``[task, class, latent]``.
        last: the codes after them.
        divergence: the estimate of KL(q(z), N(0, 1)) from the sampled codes, ``[task]``.
    """

    first: Tensor
    last: Tensor
    divergence: Tensor


@register_init("latent-head")
class LatentHead(TaskHead):
    """LEO: gradient descent on a latent code of each class (Rusu et al., 2019, section 2.3).

    A linear encoder maps features to codes, a relation network maps each pair of codes to the mean
    and deviation of a Gaussian over z_k, averaged over the pairs of class k, and a linear decoder
    maps z_k to those of W_k. Latent steps z_k <- z_k - alpha dL/dz_k, with a learned rate for each
    latent, reduce the support loss L of the decoded weights; b_k = 0. L is the sum over examples
    divided by the number of examples of a class, and features are divided by their mean norm over
    the support set. Codes and weights are means; `sampled` draws them.

    Args:
        model: a model with the parameters theta.
        adapt: patterns of the names of the adapted parameters, which must include the last layer;
            by default all parameters except normalization parameters.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.
        num_latents: number of values of a code.
        num_latent_steps: number of latent steps.
        latent_rate: the start of alpha.
        generator: source of the random weights of the three networks.

    Examples:
        >>> import torch
        >>> from alfa import MLP, SGD, adapt, cross_entropy
        >>> from alfa.inits import LatentHead
        >>> model = MLP((3,), 5, hidden=[8])
        >>> init = LatentHead(model, adapt="head", num_latents=4)
        >>> x, y = torch.randn(1, 14, 3), torch.arange(7).repeat(2)[None]  # 7 classes
        >>> options = {"init": init, "rule": SGD(init.layers), "loss": cross_entropy}
        >>> adapt(model, x, y, num_steps=5, **options).params["linear2.weight"].shape
        torch.Size([1, 7, 8])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        adapt: Patterns | None = None,
        head: str | None = None,
        num_latents: Count = 64,
        num_latent_steps: Count = 5,
        latent_rate: PositiveFloat = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model, adapt=adapt, head=head)
        for name, value in (("num_latents", num_latents), ("num_latent_steps", num_latent_steps)):
            if value < 1:
                raise ConfigError(f"`{name}` must be at least 1, got {value}.")
        size, double = model.get_parameter(f"{self.head}.weight").shape[1], 2 * num_latents
        self.num_latent_steps = num_latent_steps
        self.encoder = _linear(size, num_latents, generator)
        self.relation = nn.Sequential(
            *(_linear(double, double, generator), nn.ReLU()),
            *(_linear(double, double, generator), nn.ReLU()),
            _linear(double, double, generator),
        )
        self.decoder = _linear(num_latents, 2 * size, generator)
        self.rates = nn.Parameter(torch.full((num_latents,), float(latent_rate)))
        self._seed: int | None = None
        self.codes: LatentCodes | None = None

    def sampled(self, seed: int) -> Self:
        """Return a copy with the same parameters that draws codes and weights.

        All tasks get the same random numbers. After a call of `start`, `codes` contains the codes.
        """
        other = copy.copy(self)
        other._seed = seed
        return other

    def initial_head(self, body: Params, support: Support, way: int) -> dict[str, Tensor]:
        x, y = support.embed(body, self.head), support.y
        # The paper's features have norm 1; one factor for each task keeps the last layer linear.
        norm = x.norm(dim=2).mean(1).clamp_min(_LEAST_NORM).view(-1, 1, 1)
        x = x / norm
        generator = None
        if self._seed is not None:
            generator = torch.Generator().manual_seed(self._seed)
        first, divergence = self._encode(x, y, way, generator)
        z = first
        for _ in range(self.num_latent_steps):
            z = z - self.rates * self._gradient(z, x, y, generator)
        weight = self._decode(z, generator) / norm
        if generator is not None:
            self.codes = LatentCodes(first, z, divergence)
        return {"weight": weight, "bias": torch.zeros_like(weight[..., 0])}

    def _encode(
        self, x: Tensor, y: Tensor, way: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        codes = self.encoder(x)
        num_examples = x.shape[1]
        left = codes.unsqueeze(2).expand(-1, -1, num_examples, -1)
        pairs = self.relation(torch.cat([left, left.transpose(1, 2)], dim=3)).mean(2)
        members = F.one_hot(y, way).to(x.dtype)
        mean, raw = (members.mT @ pairs / members.sum(1).unsqueeze(2)).chunk(2, dim=2)
        if generator is None:
            return mean, mean.new_zeros(len(mean))
        deviation: Tensor = self._deviation(raw, 0.0)
        noise = _noise(mean, generator)
        z = mean + deviation * noise
        # log q(z) - log N(z; 0, 1)
        divergence = -deviation.log() - noise.square() / 2 + z.square() / 2
        return z, divergence.mean((1, 2))

    def _decode(self, z: Tensor, generator: torch.Generator | None) -> Tensor:
        decoded: Tensor = self.decoder(z)
        mean, raw = decoded.chunk(2, dim=2)
        if generator is None:
            return mean
        offset = (2 / (z.shape[1] + mean.shape[2])) ** 0.5
        return mean + self._deviation(raw, offset) * _noise(mean, generator)

    def _deviation(self, raw: Tensor, offset: float) -> Tensor:
        return (raw.exp() - (1 - offset)).clamp_min(_LEAST_DEVIATION)

    def _gradient(
        self, z: Tensor, x: Tensor, y: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Return the gradient of the support loss in the codes."""
        has_graph = torch.is_grad_enabled() and z.requires_grad
        with torch.enable_grad():
            z = z if has_graph else z.detach().requires_grad_()
            outputs = x @ self._decode(z, generator).mT
            losses = F.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none")
            shot = y.shape[1] / z.shape[1]
            (gradient,) = torch.autograd.grad(losses.sum() / shot, z, create_graph=has_graph)
        return gradient

    def orthogonality(self) -> Tensor:
        """Return the mean squared difference between the decoder's correlations and identity."""
        rows = F.normalize(self.decoder.weight.T, dim=1, eps=1e-32)
        identity = torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
        return (rows @ rows.T - identity).square().mean()

    def squared_norm(self) -> Tensor:
        """Return half the sum of the squared weights of the three networks."""
        parts = (self.encoder, self.relation, self.decoder)
        weights = itertools.chain.from_iterable(part.parameters() for part in parts)
        return torch.stack([weight.square().sum() for weight in weights]).sum() / 2


def _linear(num_inputs: int, num_outputs: int, generator: torch.Generator | None) -> nn.Linear:
    linear = uninitialized(nn.Linear, num_inputs, num_outputs, bias=False)
    nn.init.xavier_uniform_(linear.weight, generator=generator)
    return linear


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape[1:], generator=generator, dtype=torch.float64).to(like)
