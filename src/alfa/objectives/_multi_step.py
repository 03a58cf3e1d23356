"""The weighted sum of the query losses of all inner steps, the objective of MAML++."""

import math
from dataclasses import replace

from alfa.errors import ConfigError
from alfa.learner import Learner, Outcome
from alfa.objectives._base import Objective, register_objective
from alfa.types import Count, Episode, NonNegativeFloat, Order


@register_objective("multi-step")
class MultiStep(Objective):
    """The query losses of all inner steps, with weights that move to the last step (MAML++).

    With S inner steps and E the epochs of the annealing, the weight of step s < S in epoch e is
    max(1 - e / E, smallest_weight) / S, and the last step has the rest; the weights have the sum 1.
    After E epochs, the objective is the query loss of the last step alone. See Antoniou et al.,
    2019, "multi-step loss optimization" and "derivative-order annealing".

    Args:
        annealed_until: the part of the training with losses of all steps, from 0 to 1; 0 for none.
        smallest_weight: the smallest weight of a step but the last, as a fraction of 1 / S.
        first_order_until: the part of the training with outer gradients of first order, from 0 to
            1; 0 for none. The order of the learner applies to the rest.
        num_epochs: number of equal parts of the training in which the weights are constant.

    Examples:
        >>> from alfa.objectives import MultiStep
        >>> objective = MultiStep(annealed_until=0.5, num_epochs=4)
        >>> [objective.weights(2, progress) for progress in (0.0, 0.24, 0.25)]
        [[0.5, 0.5], [0.5, 0.5], [0.25, 0.75]]
    """

    def __init__(
        self,
        *,
        annealed_until: NonNegativeFloat = 0.15,
        smallest_weight: NonNegativeFloat = 0.03,
        first_order_until: NonNegativeFloat = 0.0,
        num_epochs: Count = 100,
    ) -> None:
        super().__init__()
        fractions = {
            "annealed_until": annealed_until,
            "smallest_weight": smallest_weight,
            "first_order_until": first_order_until,
        }
        for name, value in fractions.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"`{name}` must be from 0 to 1, got {value}.")
        if num_epochs < 1:
            raise ConfigError(f"`num_epochs` must be at least 1, got {num_epochs}.")
        self.annealed_until, self.smallest_weight = annealed_until, smallest_weight
        self.first_order_until, self.num_epochs = first_order_until, num_epochs
        self.uses_progress = annealed_until > 0 or first_order_until > 0

    def weights(self, num_steps: int, progress: float) -> list[float]:
        """Return the weights of the steps 1, ..., S at some progress of the annealing."""
        # In binary, the progress 0.29 times 100 is less than 29.
        epoch = math.floor(progress * self.num_epochs + 1e-9)
        annealed = max(1 - epoch / (self.annealed_until * self.num_epochs), self.smallest_weight)
        others = [annealed / num_steps] * (num_steps - 1)
        return [*others, 1 - sum(others)]

    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        order: Order | None = "first" if progress < self.first_order_until else None
        if progress >= self.annealed_until or learner.num_steps == 0:
            last: Outcome = learner(episode, order=order)
            return last
        steps = learner.steps(episode.support_x, episode.support_y, order=order)
        next(steps)  # theta_{i,0} has no weight
        weights = self.weights(learner.num_steps, progress)
        outcomes = [learner.evaluate(adapted, episode) for adapted in steps]
        losses = [w * o.query_losses for w, o in zip(weights, outcomes, strict=True)]
        return replace(outcomes[-1], objective=sum(losses[1:], losses[0]))
