"""Stopping a long command on a signal without losing progress."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import typer

from alfa.errors import LostError

# The exit code of a process that lost the others of its run; restarting all of them helps.
LOST = 75
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds for which a launcher may still forward a signal that was sent to all processes.
_ECHO = 2.0


class StopRequest:
    """Whether a signal asked the command to stop, and which one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The exit code of a command that was stopped."""
        return 128 + (self.signal or signal.SIGINT)

    def report(self, hint: str) -> None:
        """Print that the command has stopped, and how to continue."""
        with suppress(OSError):
            typer.echo(f"alfa: stopped; {hint}.", err=True)


def exit_code(error: Exception) -> int:
    """The exit code of a command after an error that the user can fix."""
    return LOST if isinstance(error, LostError) else 2


@contextmanager
def stoppable(*, quiet: bool = False) -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request to stop; the second one stops at once.

    A launcher may forward a signal that its processes have received already; the two count as one.
    """
    from alfa._distributed import is_launched

    request, received, may_echo = StopRequest(), 0.0, is_launched()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received, may_echo
        now = time.monotonic()
        if request():
            if not may_echo or now - received > _ECHO:
                raise KeyboardInterrupt
            may_echo = False
            return
        request.signal, received = number, now
        if not quiet:
            # Unbuffered, because the signal may interrupt a write; the terminal may be gone.
            message = b"\nalfa: stopping after saving everything; once more stops at once.\n"
            with suppress(OSError):
                os.write(2, message)

    if threading.current_thread() is not threading.main_thread():
        # Only the main thread receives signals.
        yield request
        return
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
