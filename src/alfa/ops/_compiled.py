"""The choice between compiled kernels and torch operations, and the arrays passed to kernels."""

import functools
import importlib
import threading
import warnings
from collections.abc import Callable
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

_thread_state = threading.local()


@functools.cache
def numba_available() -> bool:
    """Return whether numba works. Importing it takes longer than importing all of alfa."""
    return _works(mlp_kernels)


@functools.cache
def winograd_available(dtype: torch.dtype) -> bool:
    """Return whether the Winograd kernels compile, if numba is available."""
    return _works(lambda: winograd_kernels(dtype))


def _works(load: Callable[[], object]) -> bool:
    """Return whether kernels load; warn if numba is installed but does not work."""
    try:
        load()
    except ModuleNotFoundError:
        return False
    except Exception as error:  # torch replaces a broken installation, whatever its fault
        warnings.warn(
            "numba is installed but cannot be used, so alfa uses plain torch, which is slower: "
            f"{type(error).__name__}: {error}",
            stacklevel=3,
        )
        return False
    return True


def mlp_kernels() -> ModuleType:
    return _module("_mlp_kernels")


def update_kernels() -> ModuleType:
    return _module("_update_kernels")


def norm_kernels() -> ModuleType:
    _sync_threads()
    return _module("_norm_kernels")


def winograd_kernels(dtype: torch.dtype) -> Any:
    _sync_threads()
    return _module("_winograd_kernels").kernels(str(dtype).removeprefix("torch."))


@functools.cache
def _module(name: str) -> ModuleType:
    """Import kernels on first use."""
    return importlib.import_module(f"alfa.ops.{name}")


def _sync_threads() -> None:
    """Give numba as many threads as torch uses, or as many as numba has."""
    number = torch.get_num_threads()
    # numba keeps a number for each thread, and reading it costs more than a small kernel.
    if getattr(_thread_state, "number", None) == number:
        return
    numba = importlib.import_module("numba")
    numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))
    _thread_state.number = number
    if torch.get_num_threads() != number:
        # The first use starts numba's threads, which share torch's library and reset its number.
        torch.set_num_threads(number)


def use_kernels(*tensors: Tensor, work: int = 0) -> bool:
    """Return whether the compiled kernels accept these tensors and are faster than torch."""
    dtype = tensors[0].dtype
    return (
        work <= _MOST_WORK
        and dtype in _DTYPES
        and all(t.is_cpu and t.dtype == dtype for t in tensors)
        and numba_available()
    )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Return contiguous arrays; an output tensor must be contiguous already."""
    return [None if tensor is None else array(tensor) for tensor in tensors]


def array(tensor: Tensor) -> Any:
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.contiguous().numpy()
