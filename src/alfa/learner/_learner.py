"""The learner, which joins a model, an init, a rule, and a loss in one module."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from alfa.errors import ConfigError
from alfa.inits import Init
from alfa.learner._loop import Adapted, adapt, check_options, steps, support_gradients
from alfa.learner._memory import MemoryMode
from alfa.models import BatchNorm, OverTasks
from alfa.ops import Loss, check_loss
from alfa.rules import Rule
from alfa.types import Episode, Order, Params


@dataclass(frozen=True)
class Outcome:
    """The results of a stack of tasks.

    Attributes:
        query_losses: ``[task]``.
        outputs: outputs of the adapted models on the query sets, ``[task, query, ...]``.
        adapted: the adapted models.
        objective: what the outer loop minimizes instead of `query_losses`, ``[task]``.
    """

    query_losses: Tensor
    outputs: Tensor
    adapted: Adapted
    objective: Tensor | None = None

    @property
    def losses(self) -> Tensor:
        """What the outer loop minimizes, ``[task]``."""
        return self.query_losses if self.objective is None else self.objective


class Learner(nn.Module):
    """A model with the init, rule, and loss of its adaptation.

    `alfa.adapt` explains all options.

    Args:
        model: any module.
        init: returns theta_{i,0}.
        rule: returns the rates of every step.
        loss: maps outputs and targets ``[task, example, ...]`` to losses ``[task]``.
        num_steps: number of inner steps.
        order: order of the outer gradient, ``"second"`` or ``"first"``.
        over_tasks: ``"auto"``, ``"loop"``, or ``"stack"``.
        batch_norm: ``"transductive"`` or ``"inductive"``.
        memory: ``"store"`` or ``"recompute"``.
        batch_size: number of support examples in each inner step; None for all.

    Examples:
        >>> from alfa import ALFA, MLP, Learner, LearnedInit, Sinusoids, mse
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=ALFA(init.layers), loss=mse)
        >>> outcome = learner(Sinusoids(num_support=10).episode(0, num_tasks=4))
        >>> outcome.query_losses.mean().backward()
        >>> outcome.query_losses.shape
        torch.Size([4])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        init: Init,
        rule: Rule,
        loss: Loss,
        num_steps: int = 5,
        order: Order = "second",
        over_tasks: OverTasks = "auto",
        batch_norm: BatchNorm = "transductive",
        memory: MemoryMode = "store",
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.init, self.rule = model, init, rule
        self.loss = check_loss(loss)
        self.num_steps = num_steps
        self.order: Order = order
        self.over_tasks: OverTasks = over_tasks
        self.batch_norm: BatchNorm = batch_norm
        self.memory: MemoryMode = memory
        self.batch_size = batch_size
        check_options(
            model,
            order=order,
            over_tasks=over_tasks,
            batch_norm=batch_norm,
            memory=memory,
            batch_size=batch_size,
        )

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on or off, and leave every normalization layer in its mode.

        In evaluation mode, torch's batch norm would use running statistics, which an inner loop
        never updates. A pretrained layer uses its own if the caller switches that layer.
        """
        norms = [(part, part.training) for part in self.modules() if isinstance(part, _NormBase)]
        super().train(mode)
        for norm, was_training in norms:
            norm.training = was_training
        return self

    def adapt(
        self,
        support_x: Tensor,
        support_y: Tensor,
        *,
        num_steps: int | None = None,
        order: Order | None = None,
    ) -> Adapted:
        """Adapt to every task of a stack; see `alfa.adapt`."""
        return adapt(self.model, support_x, support_y, **self._options(num_steps, order))

    def steps(
        self,
        support_x: Tensor,
        support_y: Tensor,
        *,
        num_steps: int | None = None,
        order: Order | None = None,
    ) -> Iterator[Adapted]:
        """Iterate over theta_{i,0}, ..., theta_{i,S}; see `alfa.adapt`."""
        return steps(self.model, support_x, support_y, **self._options(num_steps, order))

    def _options(self, num_steps: int | None, order: Order | None) -> dict[str, Any]:
        return {
            "init": self.init,
            "rule": self.rule,
            "loss": self.loss,
            "num_steps": self.num_steps if num_steps is None else num_steps,
            "order": self.order if order is None else order,
            "over_tasks": self.over_tasks,
            "batch_norm": self.batch_norm,
            "memory": self.memory,
            "batch_size": self.batch_size,
        }

    def forward(
        self, episode: Episode, *, num_steps: int | None = None, order: Order | None = None
    ) -> Outcome:
        """Adapt to the support sets, and evaluate the adapted models on the query sets."""
        adapted = self.adapt(episode.support_x, episode.support_y, num_steps=num_steps, order=order)
        return self.evaluate(adapted, episode)

    def evaluate(self, adapted: Adapted, episode: Episode) -> Outcome:
        """Evaluate adapted models on the query sets."""
        outputs = adapted.predict(episode.query_x)
        if self.init.variable_way:
            _check_queries(episode.query_y, way=outputs.shape[-1])
        return Outcome(self.loss(outputs, episode.query_y), outputs, adapted)

    def support_gradients(self, adapted: Adapted, episode: Episode) -> Params:
        """Return the gradient of each task's support loss at adapted weights.

        It is differentiable in these weights, the shared parameters, and those of the loss.
        """
        options = self._options(0, "second")
        del options["num_steps"]
        return support_gradients(adapted, episode.support_x, episode.support_y, **options)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, which the examples must have too."""
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    def meta_parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the parameters of the init, rule, and loss that the outer loop trains."""
        yield from self.init.meta_parameters()
        yield from self.rule.parameters()
        if isinstance(self.loss, nn.Module):
            yield from self.loss.parameters()


def _check_queries(y: Tensor, *, way: int) -> None:
    """Raise ConfigError if a query set has a class without examples in the support set."""
    largest = int(y.max()) if y.numel() else 0
    if largest >= way:
        raise ConfigError(
            f"a query set has the class {largest}, but the support sets have 0 to {way - 1} only; "
            "every class of a task needs a support example."
        )
