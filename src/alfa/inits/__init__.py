"""Inits: the weights that adaptation starts from."""

from alfa.inits._base import INITS, Init, Support, register_init
from alfa.inits._conditioned import ConditionedPrototypes
from alfa.inits._heads import PrototypeHead, TaskHead, ZeroHead, prototypes
from alfa.inits._inits import Attenuated, FixedInit, LearnedInit, select_layers
from alfa.inits._latent import LatentCodes, LatentHead
from alfa.inits._per_step_norm import PerStepNorm
from alfa.inits._ridge import RidgeHead
from alfa.inits._shared_head import SharedHead
from alfa.inits._svm import SVMHead
from alfa.inits._weight_map import WeightMap

__all__ = [
    "INITS",
    "Attenuated",
    "ConditionedPrototypes",
    "FixedInit",
    "Init",
    "LatentCodes",
    "LatentHead",
    "LearnedInit",
    "PerStepNorm",
    "PrototypeHead",
    "SharedHead",
    "RidgeHead",
    "SVMHead",
    "Support",
    "TaskHead",
    "WeightMap",
    "ZeroHead",
    "prototypes",
    "register_init",
    "select_layers",
]
