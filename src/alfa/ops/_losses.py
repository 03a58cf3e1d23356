"""Losses of a stack of tasks: ``[task, example, ...]`` in, ``[task]`` out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.errors import ConfigError, check_choice

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs and targets ``[task, example, ...]`` to losses ``[task]``."""


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of every task.

    Example:
        >>> import torch
        >>> from alfa import mse
        >>> mse(torch.ones(2, 5, 1), torch.zeros(2, 5, 1))
        tensor([1., 1.])
    """
    if outputs.shape != targets.shape:
        raise ConfigError(
            f"the model's outputs are of shape {tuple(outputs.shape)}, but the targets of "
            f"{tuple(targets.shape)}; `mse` needs them equal."
        )
    return (outputs - targets).square().flatten(1).mean(1)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of every task, from logits ``[task, example, class]``.

    Examples may have several places that are judged, such as pixels, before the classes.

    Example:
        >>> import torch
        >>> from alfa import cross_entropy
        >>> cross_entropy(torch.zeros(2, 5, 4), torch.zeros(2, 5, dtype=torch.long))
        tensor([1.3863, 1.3863])
    """
    if outputs.ndim < 3 or outputs.shape[:-1] != targets.shape:
        raise ConfigError(
            f"the model's outputs are of shape {tuple(outputs.shape)}, but the targets of "
            f"{tuple(targets.shape)}; `cross_entropy` needs [task, example, class] and "
            "[task, example]."
        )
    return F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none").flatten(1).mean(1)


def per_task(loss: Loss) -> Loss:
    """Lift a loss of one task, such as those of `torch.nn.functional`, to a stack of tasks.

    Example:
        >>> import torch
        >>> from alfa.ops import per_task
        >>> huber = per_task(torch.nn.functional.huber_loss)
        >>> huber(torch.ones(3, 5, 1), torch.zeros(3, 5, 1))
        tensor([0.5000, 0.5000, 0.5000])
    """

    def stacked(outputs: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(outputs.unbind(0), targets.unbind(0), strict=True)
        return torch.stack([loss(output, target) for output, target in pairs])

    return stacked


def check_loss(loss: Loss) -> Loss:
    """The loss, unless it is one of torch's, which take the examples of a single task.

    Raises:
        ConfigError: it is, or cannot be called.
    """
    own = ""
    name = getattr(loss, "__name__", None)
    # By what they are: whoever wraps them for many tasks may give the wrapper their names.
    if name is not None and getattr(F, name, None) is loss:
        own = f"F.{name}"
    kind = loss if isinstance(loss, type) else type(loss)
    if kind.__module__ == "torch.nn.modules.loss":
        own = f"nn.{kind.__name__}()"
    if own:
        raise ConfigError(
            f"`loss` is {own} of torch, which knows nothing of tasks; lift it with "
            f"alfa.ops.per_task({own}), or use cross_entropy or mse of alfa."
        )
    if not callable(loss):
        raise ConfigError(
            f"`loss` is {loss!r}, but must be called with outputs and targets, as mse or "
            "cross_entropy of alfa."
        )
    return loss


def check_losses(losses: Tensor, num_tasks: int) -> Tensor:
    """The losses, if there is one for each task.

    Raises:
        ConfigError: they have another shape.
    """
    if losses.shape != (num_tasks,):
        raise ConfigError(
            f"the loss must return one value per task, of shape ({num_tasks},), but returned "
            f"{tuple(losses.shape)}; lift a loss of a single task with alfa.ops.per_task(loss)."
        )
    return losses


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The fraction of correctly classified examples of every task."""
    # Not every device has float64.
    correct = (outputs.argmax(-1) == targets).cpu().double()
    # An example may have several classified places, such as pixels.
    return correct.flatten(1).mean(1)


@dataclass(frozen=True)
class NamedLoss:
    """A loss that tasks refer to by name.

    Attributes:
        function: outputs and targets ``[task, example, ...]`` to losses ``[task]``.
        metric: the same for the figure that results report; larger is better. None if results
            report the loss itself.
        has_classes: targets are class labels.
    """

    function: Loss
    metric: Loss | None = None
    has_classes: bool = False


LOSSES: dict[str, NamedLoss] = {
    "cross_entropy": NamedLoss(cross_entropy, metric=accuracy, has_classes=True),
    "mse": NamedLoss(mse),
}


def register_loss(name: str, loss: NamedLoss) -> None:
    """Register a loss under the name that `Tasks.loss` refers to.

    Example:
        >>> import torch
        >>> from alfa.ops import NamedLoss, per_task, register_loss
        >>> register_loss("huber", NamedLoss(per_task(torch.nn.functional.huber_loss)))
    """
    LOSSES[name] = loss


def get_loss(name: str) -> NamedLoss:
    """The loss registered under `name`."""
    check_choice("loss", name, LOSSES)
    return LOSSES[name]
