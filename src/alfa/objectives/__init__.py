"""Objectives: what the outer loop minimizes."""

from alfa.objectives._base import OBJECTIVES, Objective, register_objective
from alfa.objectives._co_training import CoTraining
from alfa.objectives._latent import LatentPenalties
from alfa.objectives._query_loss import QueryLoss

__all__ = [
    "OBJECTIVES",
    "CoTraining",
    "LatentPenalties",
    "Objective",
    "QueryLoss",
    "register_objective",
]
