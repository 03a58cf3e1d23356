"""Initializations: where adaptation starts."""

from alfa.inits._attenuated import Attenuated
from alfa.inits._base import INITS, Gradients, Init, register_init, select_layers
from alfa.inits._fixed import FixedInit
from alfa.inits._learned import LearnedInit

__all__ = [
    "INITS",
    "Attenuated",
    "FixedInit",
    "Gradients",
    "Init",
    "LearnedInit",
    "register_init",
    "select_layers",
]
