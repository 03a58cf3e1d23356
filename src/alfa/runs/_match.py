"""Tasks for a model that was trained on other tasks."""

from __future__ import annotations

from alfa.data import Signature, Tasks
from alfa.errors import ConfigError
from alfa.ops import get_loss


def match_tasks(tasks: Tasks, own: Signature, *, variable_way: bool = False) -> Tasks:
    """Tasks for a model that was trained on others, brought to its inputs.

    Args:
        tasks: to judge the model on.
        own: of those that it was trained on.
        variable_way: its last layer has an output for each class of a task, however many.

    Raises:
        ConfigError: the model cannot take them.
    """
    if own.mean:
        # A model keeps its training set's normalisation when it is tested elsewhere.
        tasks = tasks.like(own)
    fits = tasks.num_outputs == own.num_outputs or (
        # The linear layer has an output for each class; some of them may stay unused.
        get_loss(tasks.loss).has_classes and (variable_way or tasks.num_outputs < own.num_outputs)
    )
    if tuple(tasks.input_shape) != tuple(own.input_shape) or not fits:
        raise ConfigError(
            f"the run was trained on inputs of shape {tuple(own.input_shape)} with "
            f"{own.num_outputs} outputs, but these tasks have {tuple(tasks.input_shape)} with "
            f"{tasks.num_outputs}."
        )
    return tasks
