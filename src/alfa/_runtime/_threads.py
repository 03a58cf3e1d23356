"""How many threads serve on the machine at hand."""

from __future__ import annotations

import math
import os
from pathlib import Path

# A container's share of the processors, in version 2 of Linux's control groups.
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus() -> int:
    """Processors that this process may really use, where affinity or a container limits it."""
    cpus = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
        cpus = min(cpus, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # no limit, or none that can be read
    return cpus


class _Threads:
    """What torch had, and what was made of it here."""

    before = chosen = 0


def set_threads(num_threads: int | None = None, *, small: bool = False, share: int = 1) -> int:
    """Choose the number of threads for torch and for the compiled kernels.

    It depends on nothing that was chosen here before, for another model of the same process.

    Args:
        num_threads: what the user asked for.
        small: the operations are smaller than the cost of sharing them.
        share: processes that share the machine.

    Returns:
        The number in use.
    """
    import torch

    if torch.get_num_threads() != _Threads.chosen:
        # Nobody's, or somebody else's choice since.
        _Threads.before = torch.get_num_threads()
    if num_threads is None:
        # torch counts the processors of the machine, not those that a container may use.
        num_threads = 1 if small else min(_Threads.before, max(1, usable_cpus() // share))
    torch.set_num_threads(num_threads)
    _Threads.chosen = num_threads
    return num_threads
