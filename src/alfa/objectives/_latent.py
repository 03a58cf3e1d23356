"""The objective of LEO: the query loss of sampled weights, with penalties."""

import copy

from alfa.errors import ConfigError
from alfa.inits import LatentHead
from alfa.learner import Learner, Outcome
from alfa.objectives._base import Objective, register_objective
from alfa.types import Episode, NonNegativeFloat


@register_objective("latent-penalties")
class LatentPenalties(Objective):
    """LEO's loss for the init `LatentHead` (Rusu et al., 2019, Eqs. 6 and 7).

    The codes z and the weights of each class are drawn from their Gaussians. To the query loss,
    the objective adds beta KL(q(z), N(0, 1)), gamma |sg(z') - z|^2 between the codes before and
    after the latent steps, lambda_1 times half the squared weights of the three networks, and
    lambda_2 times the squared correlations of the decoder's rows. KL and |.|^2 are means over the
    values of the codes. The draws are a function of the progress, so a resumed run repeats them.

    Args:
        divergence: beta.
        encoder: gamma.
        squared_norm: lambda_1.
        orthogonality: lambda_2.

    Examples:
        >>> import torch
        >>> from alfa import MLP, SGD, Episode, Learner, cross_entropy
        >>> from alfa.inits import LatentHead
        >>> from alfa.objectives import LatentPenalties
        >>> init = LatentHead(MLP((3,), 5, hidden=[8]), adapt="head", num_latents=4)
        >>> learner = Learner(init.model, init=init, rule=SGD(init.layers), loss=cross_entropy)
        >>> x, y = torch.randn(2, 10, 3), torch.arange(10).expand(2, -1) % 5
        >>> LatentPenalties()(learner, Episode(x, y, x, y), progress=0.0).losses.shape
        torch.Size([2])
    """

    uses_progress = True

    def __init__(
        self,
        *,
        divergence: NonNegativeFloat = 0.466387,
        encoder: NonNegativeFloat = 2.661608e-7,
        squared_norm: NonNegativeFloat = 8.540338e-9,
        orthogonality: NonNegativeFloat = 1.523998e-3,
    ) -> None:
        super().__init__()
        given = {"divergence": divergence, "encoder": encoder, "squared_norm": squared_norm}
        for name, value in {**given, "orthogonality": orthogonality}.items():
            if not value >= 0:
                raise ConfigError(f"`{name}` must be at least 0, got {value}.")
        self.beta, self.gamma = divergence, encoder
        self.lambda_1, self.lambda_2 = squared_norm, orthogonality

    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        if not isinstance(learner.init, LatentHead):
            raise ConfigError(
                "the objective 'latent-penalties' needs the init 'latent-head', got "
                f"{type(learner.init).__name__}; use the method 'leo', or another objective."
            )
        init = learner.init.sampled(int(progress * 2**53))
        sampled = copy.copy(learner)
        sampled._modules = {**learner._modules, "init": init}
        outcome: Outcome = sampled(episode)
        codes = init.codes
        assert codes is not None, "`start` records the codes"
        encoder = (codes.last.detach() - codes.first).square().mean((1, 2))
        # Eq. 6
        losses = outcome.query_losses + self.beta * codes.divergence + self.gamma * encoder
        # Eq. 7
        penalty = self.lambda_1 * init.squared_norm() + self.lambda_2 * init.orthogonality()
        return Outcome(outcome.query_losses, outcome.outputs, outcome.adapted, losses + penalty)
