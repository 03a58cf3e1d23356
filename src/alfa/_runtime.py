"""The process and its machine: allocator, denormals, threads, devices, and child processes.

Importing this module neither imports torch nor changes the process.
"""

import ctypes
import functools
import os
import platform
import threading
import time
from dataclasses import dataclass

from alfa.errors import ConfigError

# The environment variables that disable a setting.
KEEP_MEMORY, FLUSH_DENORMALS = "ALFA_KEEP_MEMORY", "ALFA_FLUSH_DENORMALS"
# The parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
# Seconds between two checks of the parent.
_POLL_SECONDS = 0.5
# The environment variable with the parent's process id.
_PARENT = "ALFA_STARTED_BY"


@dataclass(frozen=True)
class Tuning:
    """The settings that `tune` applied."""

    keeps_memory: bool  # the allocator keeps freed blocks instead of returning them to the system
    flushes_denormals: bool  # this thread and the threads it starts treat denormal numbers as 0


def tune() -> Tuning:
    """Configure this process for speed: keep freed memory and flush denormals.

    Call it once, before the first large tensor and before torch starts its threads. The command
    line calls it; ``import alfa`` does not. The environment variables ``ALFA_KEEP_MEMORY=0`` and
    ``ALFA_FLUSH_DENORMALS=0`` disable one setting each. Calling it again changes nothing.

    Returns:
        The settings in effect. A setting that the platform does not support is False.

    Examples:
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


def usable_cpus() -> int:
    """Return the number of CPUs that affinity and the container let this process use."""
    # Importing loky takes longer than importing this package.
    from loky import cpu_count

    return int(cpu_count())


class _Threads:
    """The number of threads before the last call of `set_threads`, and the number it set."""

    before = chosen = 0


def set_threads(num_threads: int | None = None, *, small: bool = False, share: int = 1) -> int:
    """Set the number of threads of torch and the compiled kernels, and return it.

    By default, `share` processes share the CPUs of the machine, and models whose operations are too
    `small` to benefit from several threads get one. Earlier calls do not matter.
    """
    import torch

    if torch.get_num_threads() != _Threads.chosen:
        # The number is torch's default, or the user changed it.
        _Threads.before = torch.get_num_threads()
    if num_threads is None:
        # torch counts the CPUs of the machine, not of the container.
        num_threads = 1 if small else min(_Threads.before, max(1, usable_cpus() // share))
    torch.set_num_threads(num_threads)
    _Threads.chosen = num_threads
    return num_threads


def check_device(device: object, *, name: str) -> None:
    """Raise a ConfigError unless torch can use a device; `name` is the option in the message."""
    import torch

    try:
        found = torch.device(device)  # type: ignore[call-overload]
        torch.empty(1, device=found)
        usable = found.type in ("cpu", "cuda", "mps")
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ImportError):
        usable = False
    if not usable:
        known = ["cpu"]
        known += ["cuda"] if torch.cuda.is_available() else []
        known += ["mps"] if torch.backends.mps.is_available() else []
        raise ConfigError(
            f"{name} is {device!r}, which this machine does not have; it has {', '.join(known)}."
        )


def name_parent() -> None:
    """Tell the child processes that start from now on the id of this process."""
    os.environ[_PARENT] = str(os.getpid())


def has_named_parent() -> bool:
    """Return True if the parent called `name_parent` and this process does not watch it yet."""
    return _PARENT in os.environ


def leave_with_parent(parent: int | None = None) -> None:
    """Exit this process when its direct parent is gone, in a background thread.

    The default `parent` is the id from `name_parent`, or else the current parent. An id is safer,
    because the parent may exit while this process still imports.
    """
    # Child processes of this one have another parent.
    named = os.environ.pop(_PARENT, None)
    if parent is None:
        # A user may have set the variable to anything.
        parent = int(named) if named is not None and named.isdecimal() else os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
