"""When compiled kernels replace torch operations, and how tensors are passed to them."""

from __future__ import annotations

import functools
import importlib
import threading
import warnings
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

# Beyond this many multiplications torch's own threads and blocked products are faster.
_MOST_WORK = 2_000_000

_DTYPES = (torch.float32, torch.float64)

# Sums may be reordered for speed, but NaN must propagate, or divergence would go unnoticed.
FASTMATH = ("reassoc", "contract", "nsz", "arcp")
JIT_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {*FASTMATH}}

_of_thread = threading.local()


@functools.cache
def numba_available() -> bool:
    """Whether numba works; it takes longer to import than all of alfa."""
    try:
        importlib.import_module("numba")
        mlp_kernels()
    except ModuleNotFoundError:
        return False
    except Exception as error:  # torch replaces a broken installation, whatever is wrong with it
        _warn_unusable(error)
        return False
    return True


@functools.cache
def winograd_available(dtype: torch.dtype) -> bool:
    """Whether the Winograd kernels can be compiled, if numba is available."""
    try:
        winograd_kernels(dtype)
    except Exception as error:
        _warn_unusable(error)
        return False
    return True


def _warn_unusable(error: Exception) -> None:
    warnings.warn(
        f"numba is installed but cannot be used, so alfa uses plain torch, which is slower: "
        f"{type(error).__name__}: {error}",
        stacklevel=3,
    )


def mlp_kernels() -> ModuleType:
    """The kernels of small perceptrons, imported on first use."""
    return _module("_mlp_kernels")


def update_kernels() -> ModuleType:
    """The kernels of the inner update."""
    return _module("_update_kernels")


def norm_kernels() -> ModuleType:
    """The kernels of batch normalization."""
    _sync_threads()
    return _module("_norm_kernels")


def winograd_kernels(dtype: torch.dtype) -> Any:
    """The kernels of Winograd convolutions for a dtype."""
    _sync_threads()
    return _module("_winograd_kernels").kernels(str(dtype).removeprefix("torch."))


@functools.cache
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"alfa.ops.{name}")


def _sync_threads() -> None:
    """Give numba as many threads as torch uses, or as many as numba has."""
    number = torch.get_num_threads()
    # numba keeps a number for each thread, and looking it up costs more than a small kernel.
    if getattr(_of_thread, "number", None) == number:
        return
    numba = importlib.import_module("numba")
    numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))
    _of_thread.number = number
    if torch.get_num_threads() != number:
        # The first use starts numba's threads, which share torch's library and reset its number.
        torch.set_num_threads(number)


def use_kernels(*tensors: Tensor, work: int = 0) -> bool:
    """Whether the compiled kernels accept these tensors and are faster than torch."""
    dtype = tensors[0].dtype
    return (
        work <= _MOST_WORK
        and dtype in _DTYPES
        and all(t.is_cpu and t.dtype == dtype for t in tensors)
        and numba_available()
    )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Contiguous arrays; an output tensor must be contiguous already."""
    return [None if tensor is None else array(tensor) for tensor in tensors]


def array(tensor: Tensor) -> Any:
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.contiguous().numpy()
