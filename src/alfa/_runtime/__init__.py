"""The process and its machine: memory allocator, threads, devices, and child processes.

Importing this package neither imports torch nor changes the process.
"""

from alfa._runtime._child_processes import has_named_parent, leave_with_parent, name_parent
from alfa._runtime._devices import check_device
from alfa._runtime._threads import set_threads, usable_cpus
from alfa._runtime._tune import Tuning, tune

__all__ = [
    "Tuning",
    "check_device",
    "has_named_parent",
    "leave_with_parent",
    "name_parent",
    "set_threads",
    "tune",
    "usable_cpus",
]
