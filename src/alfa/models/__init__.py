"""Models, and how any module runs on a stack of tasks."""

from alfa.models._base import (
    DEFAULT_MODE,
    MODELS,
    BatchNorm,
    ExecutionMode,
    Model,
    OverTasks,
    embed_stacked,
    has_batch_norm,
    register_model,
    run_stacked,
)
from alfa.models._conv4 import Conv4
from alfa.models._convolutional import Convolutional
from alfa.models._cosine_head import CosineSGDHead
from alfa.models._dropout import DropBlock, Dropout
from alfa.models._features import FeatureMap
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
    check_inductive_head,
    feature_shape,
    last_layer,
    register_head,
)
from alfa.models._kernel_head import KernelRidge
from alfa.models._last_block import LastBlock
from alfa.models._logistic_head import LogisticHead
from alfa.models._matching import Matching, MatchingFCE
from alfa.models._mlp import MLP
from alfa.models._propagation import LabelPropagation
from alfa.models._relation import Relation
from alfa.models._resnets import ResNet12, ResNet18, WideResNet12
from alfa.models._ridge_head import RidgeRegression
from alfa.models._snail import SNAIL
from alfa.models._wide import WideResNet

__all__ = [
    "HEADS",
    "Head",
    "Headed",
    "body_parameters",
    "check_inductive_head",
    "feature_shape",
    "last_layer",
    "register_head",
    "DEFAULT_MODE",
    "MLP",
    "LabelPropagation",
    "MODELS",
    "Matching",
    "MatchingFCE",
    "BatchNorm",
    "Bound",
    "Conv4",
    "Convolutional",
    "DropBlock",
    "Dropout",
    "CosineSGDHead",
    "ExecutionMode",
    "FeatureMap",
    "KernelRidge",
    "LastBlock",
    "LogisticHead",
    "Model",
    "OverTasks",
    "Relation",
    "ResNet12",
    "ResNet18",
    "RidgeRegression",
    "WideResNet",
    "WideResNet12",
    "SNAIL",
    "batch_statistics",
    "disable_dropout",
    "embed_stacked",
    "frozen_module",
    "has_batch_norm",
    "register_model",
    "run_stacked",
    "uses_batch_statistics",
]
