"""When compiled kernels serve instead of torch operations, and how tensors get there."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

# Beyond this many multiplications torch's own threads and blocked products win.
_MOST_WORK = 2_000_000


@functools.cache
def _have_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


@functools.cache
def kernels() -> ModuleType:
    """The kernels, imported on first use: numba takes longer to import than all of alfa."""
    return importlib.import_module("alfa.ops._kernels")


def norm_kernels() -> ModuleType:
    """The kernels of batch normalisation, imported on first use too; as many threads as torch."""
    number = torch.get_num_threads()
    module = _norm_kernels()
    module.use_threads(number)
    if torch.get_num_threads() != number:
        # The first use starts numba's threads, which share torch's library and reset its number.
        torch.set_num_threads(number)
    return module


@functools.cache
def _norm_kernels() -> ModuleType:
    return importlib.import_module("alfa.ops._norm_kernels")


def worth_it(*tensors: Tensor, work: int) -> bool:
    """Whether the compiled kernels can take these tensors, and would be faster."""
    first = tensors[0]
    return (
        work <= _MOST_WORK
        and first.dtype in (torch.float32, torch.float64)
        and all(t.device.type == "cpu" and t.dtype == first.dtype for t in tensors)
        and _have_numba()
    )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Contiguous arrays; those to be written to must come from contiguous tensors."""
    return [
        None
        if tensor is None
        else (tensor if tensor.is_contiguous() else tensor.contiguous()).detach().numpy()
        for tensor in tensors
    ]
