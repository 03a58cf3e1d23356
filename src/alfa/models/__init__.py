"""Models, and how any module runs on a stack of tasks."""

from alfa.models._backbones import Conv4, Convolutional, ResNet12, ResNet18
from alfa.models._base import (
    DEFAULT_MODE,
    MODELS,
    BatchNorm,
    ExecutionMode,
    Model,
    OverTasks,
    embed_stacked,
    register_model,
    run_stacked,
)
from alfa.models._cosine_head import CosineSGDHead
from alfa.models._frozen import (
    Bound,
    batch_statistics,
    disable_dropout,
    frozen_module,
    uses_batch_statistics,
)
from alfa.models._heads import (
    HEADS,
    Head,
    Headed,
    body_parameters,
    feature_shape,
    last_layer,
    register_head,
)
from alfa.models._logistic_head import LogisticHead
from alfa.models._mlp import MLP

__all__ = [
    "HEADS",
    "Head",
    "Headed",
    "body_parameters",
    "feature_shape",
    "last_layer",
    "register_head",
    "DEFAULT_MODE",
    "MLP",
    "MODELS",
    "BatchNorm",
    "Bound",
    "Conv4",
    "Convolutional",
    "CosineSGDHead",
    "ExecutionMode",
    "LogisticHead",
    "Model",
    "OverTasks",
    "ResNet12",
    "ResNet18",
    "batch_statistics",
    "disable_dropout",
    "embed_stacked",
    "frozen_module",
    "register_model",
    "run_stacked",
    "uses_batch_statistics",
]
