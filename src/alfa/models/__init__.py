"""Models, and how any module runs on a stack of tasks."""

from alfa.models._base import (
    AS_USUAL,
    MODELS,
    BatchNorm,
    How,
    Model,
    OverTasks,
    embed_stacked,
    register_model,
    run_stacked,
)
from alfa.models._conv4 import Conv4
from alfa.models._convolutional import Convolutional
from alfa.models._frozen import (
    Bound,
    frozen_module,
    is_by_batch,
    normalising_together,
    switch_off_dropout,
)
from alfa.models._mlp import MLP
from alfa.models._resnet12 import ResNet12
from alfa.models._resnet18 import ResNet18

__all__ = [
    "AS_USUAL",
    "MLP",
    "MODELS",
    "BatchNorm",
    "Bound",
    "Conv4",
    "Convolutional",
    "How",
    "Model",
    "OverTasks",
    "ResNet12",
    "ResNet18",
    "embed_stacked",
    "frozen_module",
    "is_by_batch",
    "normalising_together",
    "register_model",
    "run_stacked",
    "switch_off_dropout",
]
