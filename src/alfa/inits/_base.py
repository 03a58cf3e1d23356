"""The base class of the inits."""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from alfa.registry import Registry
from alfa.types import Layers, Params


@dataclass(frozen=True)
class Support:
    """The support sets of a stack of tasks.

    Attributes:
        x: inputs, ``[task, support, ...]``.
        y: targets, ``[task, support, ...]``.
        gradients: returns the gradients of each task's support loss at the given parameters.
        embed: returns the inputs ``[task, support, feature]`` of a layer, given the parameters and
            the layer's name.
    """

    x: Tensor
    y: Tensor
    gradients: Callable[[Params], Params]
    embed: Callable[[Params, str], Tensor]

    @property
    def num_tasks(self) -> int:
        return self.x.shape[0]


class Init(nn.Module, abc.ABC):
    """Chooses theta_{i,0}, the weights that adaptation starts from, for every task.

    To add an init, subclass, implement the abstract methods, and decorate the class with
    ``@register_init("my-init")``. The constructor takes the model first or, to wrap another init,
    an argument called ``init``; then keyword-only options. Alfa supplies ``num_steps`` and
    ``generator`` if the constructor takes them. `alfa.testing.check_init` checks the contract of
    every init.

    Attributes:
        classification_only: targets must be class labels.
        variable_way: tasks may have any number of classes, which sets the number of outputs.
        has_step_parameters: `shared_at` differs between inner steps.

    Examples:
        >>> from alfa import Init, LearnedInit
        >>> from torch import nn
        >>> init: Init = LearnedInit(nn.Linear(3, 1))
        >>> dict(init.layers)
        {'weight': torch.Size([1, 3]), 'bias': torch.Size([1])}
    """

    classification_only: bool = False
    variable_way: bool = False
    has_step_parameters: bool = False

    @property
    @abc.abstractmethod
    def layers(self) -> Layers:
        """Names and shapes of the model's parameters that the inner loop adapts, in order."""

    @abc.abstractmethod
    def start(self, support: Support) -> Params:
        """Return theta_{i,0} of every task."""

    @abc.abstractmethod
    def shared(self) -> dict[str, Tensor]:
        """Return the parameters that the inner loop does not adapt, without a task dimension."""

    def shared_at(self, step: int) -> dict[str, Tensor]:
        """Return `shared` for inner step `step`, and for queries after this step.

        With learned parameters for every step, such as those of batch normalization in MAML++, the
        result depends on the step. `step` may exceed the number of steps in training.
        """
        return self.shared()

    @abc.abstractmethod
    def meta_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that the outer loop trains."""


INITS: Registry[Init] = Registry("init", context=("num_steps", "generator"))
register_init = INITS.register
