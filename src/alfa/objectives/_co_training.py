"""The objective of TADAM: the query loss, and at times the classification of all classes."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.learner import Learner, Outcome
from alfa.models import ExecutionMode, embed_stacked, last_layer
from alfa.objectives._base import Objective, register_objective
from alfa.types import Count, Episode, Layers, Params, PositiveFloat


@register_objective("co-training")
class CoTraining(Objective):
    """The query loss, and the cross-entropy of the images among all training classes.

    A linear layer classifies the features of the support and query images, before any adaptation,
    among the classes of the split (Oreshkin et al., 2018, TADAM, section 2.6). At progress t / T,
    this loss is added with probability decay^floor(num_stages t / T). The draw is a function of the
    progress, so all tasks of an iteration share it, and a resumed run repeats it.

    Args:
        num_features: number of inputs of the model's last layer.
        num_classes: number of classes of the training split.
        decay: the probability after the first stage.
        num_stages: number of stages of the training.

    Examples:
        >>> from alfa.objectives import CoTraining
        >>> objective = CoTraining(num_features=8, num_classes=64)
        >>> objective.probability(0.0), round(objective.probability(0.5), 4)
        (1.0, 0.3487)
    """

    uses_progress = True

    def __init__(
        self,
        *,
        num_features: int,
        num_classes: int,
        decay: PositiveFloat = 0.9,
        num_stages: Count = 20,
    ) -> None:
        super().__init__()
        if not 0 < decay <= 1:
            raise ConfigError(f"`decay` must be above 0 and at most 1, got {decay}.")
        self.decay, self.num_stages = decay, num_stages
        # Zero, which is no saddle point for a single layer
        self.weight = nn.Parameter(torch.zeros(num_classes, num_features))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def probability(self, progress: float) -> float:
        """Return the probability of the classification of all classes."""
        return float(self.decay ** int(self.num_stages * progress))

    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        outcome: Outcome = learner(episode)
        drawn = np.random.default_rng(int(progress * 2**53)).random()
        if drawn >= self.probability(progress):
            return outcome
        return replace(outcome, objective=outcome.query_losses + self.losses(learner, episode))

    def losses(self, learner: Learner, episode: Episode) -> Tensor:
        """Return the mean cross-entropy of the images of each task, ``[task]``."""
        if episode.classes is None:
            raise ConfigError(
                "the objective 'co-training' needs tasks that know the classes of their labels in "
                "the split; use few-shot tasks of images, or the objective 'query-loss'."
            )
        x = torch.cat([episode.support_x, episode.query_x], dim=1)
        y = episode.classes.gather(1, torch.cat([episode.support_y, episode.query_y], dim=1))
        shared = dict(learner.model.named_parameters())
        nothing = Params(x.new_empty(len(x), 0), Layers({}))
        mode = ExecutionMode(learner.over_tasks)
        z = embed_stacked(learner.model, last_layer(learner.model), nothing, shared, x, mode)
        outputs = F.linear(z, self.weight, self.bias)
        return (
            F.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none").view_as(y).mean(1)
        )
