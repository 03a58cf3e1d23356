"""Losses of a stack of tasks, from ``[task, example, ...]`` to ``[task]``."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.errors import ConfigError, check_choice

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs and targets ``[task, example, ...]`` to losses ``[task]``."""


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of every task.

    Examples:
        >>> import torch
        >>> from alfa import mse
        >>> mse(torch.ones(2, 5, 1), torch.zeros(2, 5, 1))
        tensor([1., 1.])
    """
    if outputs.shape != targets.shape:
        raise ConfigError(
            "`mse` needs outputs and targets of the same shape, got "
            f"{tuple(outputs.shape)} and {tuple(targets.shape)}."
        )
    return (outputs - targets).square().flatten(1).mean(1)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of every task, from logits ``[task, example, class]``.

    An example may have several classified places, such as pixels: ``[task, example, ..., class]``.

    Examples:
        >>> import torch
        >>> from alfa import cross_entropy
        >>> cross_entropy(torch.zeros(2, 5, 4), torch.zeros(2, 5, dtype=torch.long))
        tensor([1.3863, 1.3863])
    """
    if outputs.ndim < 3 or outputs.shape[:-1] != targets.shape:
        raise ConfigError(
            "`cross_entropy` needs outputs [task, example, class] and targets [task, example], "
            f"got the shapes {tuple(outputs.shape)} and {tuple(targets.shape)}."
        )
    return F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none").flatten(1).mean(1)


def squared_one_hot(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of every task between scores and one-hot labels.

    The loss of relation networks; scores are from 0 to 1.

    Examples:
        >>> import torch
        >>> from alfa.ops import squared_one_hot
        >>> squared_one_hot(torch.zeros(2, 5, 4), torch.zeros(2, 5, dtype=torch.long))
        tensor([0.2500, 0.2500])
    """
    return mse(outputs, F.one_hot(targets, outputs.shape[-1]).to(outputs.dtype))


def per_task(loss: Loss) -> Loss:
    """Lift a loss of one task, such as `torch.nn.functional.huber_loss`, to a stack of tasks.

    Examples:
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
    """Return the loss; raise ConfigError if it is torch's, which takes a single task."""
    name = getattr(loss, "__name__", "")
    kind = loss if isinstance(loss, type) else type(loss)
    torch_name = ""
    # Compare by identity, because a wrapper for stacks of tasks may keep the name of the loss.
    if name and getattr(F, name, None) is loss:
        torch_name = f"F.{name}"
    elif kind.__module__ == "torch.nn.modules.loss":
        torch_name = f"nn.{kind.__name__}()"
    if torch_name:
        raise ConfigError(
            f"`loss` is torch's {torch_name}, which takes a single task; use "
            f"alfa.ops.per_task({torch_name}), alfa.cross_entropy, or alfa.mse."
        )
    if not callable(loss):
        raise ConfigError(
            f"`loss` must be a function of outputs and targets, got {loss!r}; use "
            "alfa.cross_entropy or alfa.mse."
        )
    return loss


def check_losses(losses: Tensor, num_tasks: int) -> Tensor:
    """Return the losses; raise ConfigError unless each task has one."""
    if losses.shape != (num_tasks,):
        raise ConfigError(
            f"the loss must return one value per task, of shape ({num_tasks},), got "
            f"{tuple(losses.shape)}; lift a loss of a single task with alfa.ops.per_task(loss)."
        )
    return losses


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the fraction of correctly classified examples, or places, of every task."""
    # Not every device has float64.
    return (outputs.argmax(-1) == targets).cpu().double().flatten(1).mean(1)


@dataclass(frozen=True)
class NamedLoss:
    """A loss that tasks refer to by name."""

    function: Loss
    metric: Loss | None = None  # the reported metric; larger is better; None to report the loss
    has_classes: bool = False  # whether targets are class labels


LOSSES: dict[str, NamedLoss] = {
    "cross_entropy": NamedLoss(cross_entropy, metric=accuracy, has_classes=True),
    "mse": NamedLoss(mse),
    "squared_one_hot": NamedLoss(squared_one_hot, metric=accuracy, has_classes=True),
}


def register_loss(name: str, loss: NamedLoss) -> None:
    """Register a loss under the name that `Tasks.loss` refers to."""
    LOSSES[name] = loss


def get_loss(name: str) -> NamedLoss:
    """Return the loss registered under `name`."""
    check_choice("loss", name, LOSSES)
    return LOSSES[name]
