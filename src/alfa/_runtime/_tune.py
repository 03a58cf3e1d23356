"""Process-wide settings that make training faster; nothing here happens on import."""

from __future__ import annotations

from dataclasses import dataclass

from alfa._runtime._allocator import keep_memory
from alfa._runtime._denormals import flush_denormals


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
