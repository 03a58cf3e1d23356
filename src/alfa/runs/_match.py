"""Tasks for a model that was trained on other tasks."""

from __future__ import annotations

from alfa.data import Signature, Tasks
from alfa.errors import ConfigError
from alfa.ops import get_loss


def match_tasks(tasks: Tasks, own: Signature, *, variable_way: bool = False) -> Tasks:
    """Convert tasks to the inputs of a model that was trained on other tasks.

    Args:
        tasks: the tasks to evaluate the model on.
        own: the signature of the tasks that the model was trained on.
        variable_way: the model's last layer has an output for each class of a task.

    Raises:
        ConfigError: the model cannot take the tasks.
    """
    if own.mean:
        # A model keeps the normalization of its training set.
        tasks = tasks.like(own)
    fits = tasks.num_outputs == own.num_outputs or (
        # The outputs of the linear layer are classes, and some of them may stay unused.
        get_loss(tasks.loss).has_classes and (variable_way or tasks.num_outputs < own.num_outputs)
    )
    if tuple(tasks.input_shape) != tuple(own.input_shape) or not fits:
        raise ConfigError(
            f"the run was trained on inputs of shape {tuple(own.input_shape)} with "
            f"{own.num_outputs} outputs, but these tasks have {tuple(tasks.input_shape)} with "
            f"{tasks.num_outputs}."
        )
    return tasks
