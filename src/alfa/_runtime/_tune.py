"""Process-wide settings that make training faster; importing this module applies none of them."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from dataclasses import dataclass

# The environment variables that disable a setting.
KEEP_MEMORY, FLUSH_DENORMALS = "ALFA_KEEP_MEMORY", "ALFA_FLUSH_DENORMALS"
# The parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


@dataclass(frozen=True)
class Tuning:
    """The settings that `tune` applied.

    Attributes:
        keeps_memory: the allocator keeps freed blocks instead of returning them to the system.
        flushes_denormals: this thread and the threads it starts treat denormal numbers as 0.
    """

    keeps_memory: bool
    flushes_denormals: bool


def tune() -> Tuning:
    """Configure this process for speed: keep freed memory and flush denormals.

    Call it once, before the first large tensor and before torch starts its threads. The command
    line calls it; ``import alfa`` does not. The environment variables ``ALFA_KEEP_MEMORY=0`` and
    ``ALFA_FLUSH_DENORMALS=0`` disable one setting each. Calling it again changes nothing.

    Returns:
        The settings in effect. A setting that the platform does not support is False.

    Example:
        >>> import alfa
        >>> alfa.tune() == alfa.tune()
        True
    """
    return Tuning(keeps_memory=keep_memory(), flushes_denormals=flush_denormals())


@functools.cache
def keep_memory() -> bool:
    """Make glibc keep freed memory; return True if it does.

    By default, glibc returns every large freed block to the system, which zeroes it page by page
    for its next use. For tensors of tens of megabytes this takes as long as the arithmetic.
    Keeping blocks costs some memory, because holes between them are not always reused.
    """
    if os.environ.get(KEEP_MEMORY) == "0" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # A threshold of -1 disables trimming, however much memory is free.
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(key, value) == 1 for key, value in settings.items())


@functools.cache
def flush_denormals() -> bool:
    """Make this thread and the threads it starts treat denormals as 0; return True if they do.

    Many CPUs are slow on numbers below 1.2e-38. Gradients reach them when a task is learned well
    or a softmax saturates, and a convolution then takes up to seventeen times as long. Flushing
    them does not change results.
    """
    if os.environ.get(FLUSH_DENORMALS) == "0":
        return False
    import torch

    return torch.set_flush_denormal(True)
