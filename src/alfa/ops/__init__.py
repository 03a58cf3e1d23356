"""Operations with fast first and second derivatives, and the losses."""

from alfa.ops._allocator import keep_memory
from alfa.ops._denormals import flush_denormals
from alfa.ops._device import check_device
from alfa.ops._losses import (
    LOSSES,
    Loss,
    check_loss,
    check_losses,
    cross_entropy,
    get_loss,
    mse,
    per_task,
)
from alfa.ops._mlp import mlp, mlp_mse_gradients
from alfa.ops._network import Plan, network, network_gradients, norm_pool_act
from alfa.ops._threads import set_threads, usable_cpus
from alfa.ops._undrawn import undrawn
from alfa.ops._update import apply_rates, layer_means, spread

__all__ = [
    "LOSSES",
    "Loss",
    "Plan",
    "apply_rates",
    "check_device",
    "check_loss",
    "check_losses",
    "cross_entropy",
    "flush_denormals",
    "get_loss",
    "keep_memory",
    "layer_means",
    "mlp",
    "mlp_mse_gradients",
    "mse",
    "network",
    "network_gradients",
    "norm_pool_act",
    "per_task",
    "set_threads",
    "spread",
    "undrawn",
    "usable_cpus",
]

# Before the first large tensor and the first thread, so that users get both without knowing.
keep_memory()
flush_denormals()
