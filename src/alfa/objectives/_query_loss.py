"""The query loss of the adapted model, the objective of MAML and ALFA."""

from dataclasses import replace

from torch import Tensor
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.learner import Learner, Outcome
from alfa.objectives._base import Objective, register_objective
from alfa.ops import get_loss
from alfa.types import Episode, PositiveFloat


@register_objective("query-loss")
class QueryLoss(Objective):
    """The loss of the query set after the last inner step (Eqs. 2 and 6).

    Args:
        loss: the name of another loss than the learner's, such as ``"squared_one_hot"``.
        temperature: divides the outputs on the query set, but not those on the support set.
        label_smoothing: the probability of the true class that cross-entropy distributes over all
            classes; only for class labels and the learner's loss.

    Examples:
        >>> from alfa import MLP, SGD, Learner, LearnedInit, Sinusoids, mse
        >>> from alfa.objectives import QueryLoss
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
        >>> QueryLoss()(learner, Sinusoids().episode(0, num_tasks=4), progress=0.0).losses.shape
        torch.Size([4])
    """

    def __init__(
        self,
        *,
        loss: str | None = None,
        temperature: PositiveFloat = 1.0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ConfigError(f"`temperature` must be greater than 0, got {temperature}.")
        if not 0 <= label_smoothing < 1:
            raise ConfigError(
                f"`label_smoothing` must be at least 0 and below 1, got {label_smoothing}."
            )
        if loss is not None and label_smoothing:
            raise ConfigError(
                f"`label_smoothing` applies to cross-entropy, but `loss` is {loss!r}; omit one of "
                "them."
            )
        self.loss = None if loss is None else get_loss(loss).function
        self.temperature, self.label_smoothing = temperature, label_smoothing

    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        outcome: Outcome = learner(episode)
        if self.loss is None and self.temperature == 1 and not self.label_smoothing:
            return outcome
        return replace(outcome, objective=self.losses(learner, outcome.outputs, episode.query_y))

    def losses(self, learner: Learner, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each task's outputs, ``[task]``."""
        outputs = outputs / self.temperature
        if self.label_smoothing:
            if targets.is_floating_point():
                raise ConfigError(
                    "`label_smoothing` needs class labels, but these tasks are regression; omit it."
                )
            log_p = F.log_softmax(outputs, dim=-1)
            true = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
            mixed = (1 - self.label_smoothing) * true + self.label_smoothing * log_p.mean(-1)
            return -mixed.flatten(1).mean(1)
        return (self.loss or learner.loss)(outputs, targets)
