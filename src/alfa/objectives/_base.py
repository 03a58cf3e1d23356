"""The base class of the objectives."""

import abc

from torch import nn

from alfa.learner import Learner, Outcome
from alfa.registry import Registry
from alfa.types import Episode


class Objective(nn.Module, abc.ABC):
    """The loss of the outer loop.

    The trainer minimizes the mean of `Outcome.losses` over tasks, and reports `query_losses`. An
    objective changes neither the learner nor itself, and treats tasks independently.
    Its own parameters, if any, are trained with the learner's.

    To add an objective, subclass, implement `forward`, and decorate the class with
    ``@register_objective("my-objective")``. The constructor takes keyword-only options; alfa
    supplies ``num_steps``, ``num_features`` of the last layer, and ``num_classes`` of the training
    split if the constructor takes them.
    `alfa.testing.check_objective` checks the contract of every objective.

    Attributes:
        uses_progress: the loss depends on `progress`, so a run cannot be extended.

    Examples:
        >>> from dataclasses import replace
        >>> from alfa import MLP, SGD, Learner, LearnedInit, Objective, Sinusoids, mse
        >>> class SupportAndQuery(Objective):
        ...     def forward(self, learner, episode, *, progress):
        ...         outcome = learner(episode)
        ...         support = outcome.adapted.predict(episode.support_x)
        ...         more = learner.loss(support, episode.support_y)
        ...         return replace(outcome, objective=outcome.query_losses + more)
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
        >>> episode = Sinusoids().episode(0, num_tasks=4)
        >>> SupportAndQuery()(learner, episode, progress=0.0).losses.shape
        torch.Size([4])
    """

    uses_progress: bool = False

    @abc.abstractmethod
    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        """Return the losses of a stack of tasks.

        Args:
            learner: the learner to train.
            episode: the tasks.
            progress: the completed part of the training, from 0 to 1.
        """


OBJECTIVES: Registry[Objective] = Registry(
    "objective", context=("num_steps", "num_features", "num_classes")
)
register_objective = OBJECTIVES.register
