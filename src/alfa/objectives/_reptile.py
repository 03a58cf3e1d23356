"""The distance to the adapted weights, the objective of Reptile."""

from dataclasses import replace

import torch

from alfa.learner import Learner, Outcome
from alfa.objectives._base import Objective, register_objective
from alfa.objectives._reach import check_reach
from alfa.types import Episode


@register_objective("reptile")
class Reptile(Objective):
    """Half the squared distance of theta to the adapted weights phi (Nichol et al., 2018).

    Its gradient is theta - phi, with phi a constant. An outer SGD step with the learning rate
    epsilon is thus theta + epsilon (mean phi - theta), the update of Reptile. The support and query
    sets are both training data: phi is adapted to their union, and the query loss is for reports
    only. The inner loop has no graph, whatever its order.

    Examples:
        >>> from alfa import MLP, SGD, Learner, LearnedInit, Sinusoids, mse
        >>> from alfa.objectives import Reptile
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
        >>> Reptile()(learner, Sinusoids().episode(0, num_tasks=4), progress=0.0).losses.shape
        torch.Size([4])
    """

    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        x = torch.cat([episode.support_x, episode.query_x], dim=1)
        y = torch.cat([episode.support_y, episode.query_y], dim=1)
        start = learner.adapt(x, y, num_steps=0, order="first")
        check_reach("reptile", learner, start, trains_shared=False)
        theta = start.params.flat
        adapted = learner.adapt(x, y, order="none")
        with torch.no_grad():
            outcome = learner.evaluate(adapted, episode)
        phi = adapted.params.flat
        return replace(outcome, objective=(theta - phi).square().sum(1) / 2)
