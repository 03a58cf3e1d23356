"""Operations with fast first and second derivatives, and the losses."""

from alfa.ops._conv import Kernel, Patches, Term, conv, conv_backward
from alfa.ops._crammer_singer import crammer_singer_dual
from alfa.ops._logistic_regression import logistic_regression
from alfa.ops._losses import (
    LOSSES,
    Loss,
    NamedLoss,
    accuracy,
    check_loss,
    check_losses,
    cross_entropy,
    get_loss,
    mse,
    per_task,
    register_loss,
    squared_one_hot,
)
from alfa.ops._mlp import mlp, mlp_mse_gradients
from alfa.ops._network import Plan, network, network_gradients
from alfa.ops._uninitialized import uninitialized
from alfa.ops._update import apply_rates, expand_to_parameters, layer_means

__all__ = [
    "LOSSES",
    "Kernel",
    "Loss",
    "NamedLoss",
    "Patches",
    "Plan",
    "Term",
    "accuracy",
    "apply_rates",
    "check_loss",
    "check_losses",
    "conv",
    "conv_backward",
    "crammer_singer_dual",
    "cross_entropy",
    "expand_to_parameters",
    "get_loss",
    "layer_means",
    "logistic_regression",
    "mlp",
    "mlp_mse_gradients",
    "mse",
    "network",
    "network_gradients",
    "per_task",
    "register_loss",
    "squared_one_hot",
    "uninitialized",
]
