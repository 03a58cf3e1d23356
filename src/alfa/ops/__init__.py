"""Operations with fast first and second derivatives, and the losses."""

from alfa.ops._conv_gradients import Norms, conv_gradients
from alfa.ops._losses import LOSSES, Loss, cross_entropy, get_loss, mse, per_task
from alfa.ops._mlp import mlp, mlp_mse_gradients
from alfa.ops._norm import norm_pool_act
from alfa.ops._update import apply_rates, layer_means, spread

__all__ = [
    "LOSSES",
    "Loss",
    "Norms",
    "apply_rates",
    "conv_gradients",
    "cross_entropy",
    "get_loss",
    "layer_means",
    "mlp",
    "mlp_mse_gradients",
    "mse",
    "norm_pool_act",
    "per_task",
    "spread",
]
