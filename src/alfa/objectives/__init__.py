"""Objectives: what the outer loop minimizes."""

from alfa.objectives._base import OBJECTIVES, Objective, register_objective
from alfa.objectives._co_training import CoTraining
from alfa.objectives._implicit import Implicit
from alfa.objectives._latent import LatentPenalties
from alfa.objectives._multi_step import MultiStep
from alfa.objectives._query_loss import QueryLoss
from alfa.objectives._reptile import Reptile

__all__ = [
    "OBJECTIVES",
    "Implicit",
    "MultiStep",
    "Objective",
    "QueryLoss",
    "Reptile",
    "CoTraining",
    "LatentPenalties",
    "register_objective",
]
