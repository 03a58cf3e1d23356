"""Initializations: the weights that adaptation starts from."""

from alfa.inits._attenuated import Attenuated
from alfa.inits._base import INITS, Init, Support, register_init, select_layers
from alfa.inits._fixed import FixedInit
from alfa.inits._heads import PrototypeHead, TaskHead, ZeroHead, prototypes
from alfa.inits._learned import LearnedInit

__all__ = [
    "INITS",
    "Attenuated",
    "FixedInit",
    "Init",
    "LearnedInit",
    "PrototypeHead",
    "Support",
    "TaskHead",
    "ZeroHead",
    "prototypes",
    "register_init",
    "select_layers",
]
