"""The number of CPU threads."""

from __future__ import annotations


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
