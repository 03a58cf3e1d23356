"""When compiled kernels serve instead of torch operations, and how tensors get there."""

from __future__ import annotations

import functools
import importlib
import threading
import warnings
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

# Beyond this many multiplications torch's own threads and blocked products win.
_MOST_WORK = 2_000_000

DTYPES = (torch.float32, torch.float64)

_of_thread = threading.local()


@functools.cache
def _have_numba() -> bool:
    """Whether numba can be used; it takes longer to import than all of alfa."""
    try:
        importlib.import_module("numba")
        kernels()
    except ModuleNotFoundError:
        return False
    except Exception as error:  # whatever is wrong with an installation, torch serves
        _say_that_torch_serves(error)
        return False
    return True


def _say_that_torch_serves(error: Exception) -> None:
    warnings.warn(
        f"numba is installed but cannot be used, so plain torch serves, which is slower: "
        f"{type(error).__name__}: {error}",
        stacklevel=3,
    )


def kernels() -> ModuleType:
    """The kernels of small perceptrons, imported on first use."""
    return _module("_kernels")


def update_kernels() -> ModuleType:
    """The kernels of the inner update."""
    return _module("_update_kernels")


def norm_kernels() -> ModuleType:
    """The kernels of batch normalisation."""
    _use_threads()
    return _module("_norm_kernels")


def winograd_maps(dtype: torch.dtype) -> Any:
    """The maps of convolutions after Winograd, for numbers of a type."""
    _use_threads()
    return _module("_winograd_kernels").maps(str(dtype).removeprefix("torch."))


@functools.cache
def can_winograd(dtype: torch.dtype) -> bool:
    """Whether the maps can be compiled, where there is numba."""
    try:
        winograd_maps(dtype)
    except Exception as error:
        _say_that_torch_serves(error)
        return False
    return True


@functools.cache
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"alfa.ops.{name}")


def _use_threads() -> None:
    """As many threads as torch uses, or as numba has."""
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


def worth_it(*tensors: Tensor, work: int) -> bool:
    """Whether the compiled kernels can take these tensors, and would be faster."""
    dtype = tensors[0].dtype
    return (
        work <= _MOST_WORK
        and dtype in DTYPES
        and all(t.is_cpu and t.dtype == dtype for t in tensors)
        and _have_numba()
    )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Contiguous arrays; those to be written to must come from contiguous tensors."""
    return [None if tensor is None else array(tensor) for tensor in tensors]


def array(tensor: Tensor) -> Any:
    if tensor.requires_grad:
        tensor = tensor.detach()
    return (tensor if tensor.is_contiguous() else tensor.contiguous()).numpy()
