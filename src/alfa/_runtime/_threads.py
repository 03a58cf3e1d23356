"""The number of CPU threads."""

from __future__ import annotations


def usable_cpus() -> int:
    """CPUs that this process may use, also if affinity or a container limits it."""
    # Importing loky takes longer than this package.
    from loky import cpu_count

    return int(cpu_count())


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
