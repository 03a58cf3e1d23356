"""Stopping a long command on a signal without losing progress."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType

import typer

from alfa.cli import lazy
from alfa.errors import LostError

# Exit code of a process that lost contact with the others; restarting all of them helps.
LOST = 75
# Seconds during which a launcher may forward a signal that its processes received already.
_ECHO_SECONDS = 2.0


class StopRequest:
    """Returns True when called after a signal asked the command to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The exit code of the stopped command."""
        return 128 + (self.signal or signal.SIGINT)


def exit_code(error: Exception) -> int:
    """Return the exit code for an error that the user can fix."""
    return LOST if isinstance(error, LostError) else 2


@contextmanager
def stoppable(*, quiet: bool = False, hint: str | None = None) -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request to stop; the second one stops at once.

    If a launcher forwards a signal that its processes received already, the two count as one.
    `hint` says how to continue a stopped command; with an empty hint, it exits silently.
    """
    request, received = StopRequest(), 0.0
    may_echo = lazy._distributed.is_launched()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received, may_echo
        now = time.monotonic()
        if request():
            if not may_echo or now - received > _ECHO_SECONDS:
                raise KeyboardInterrupt
            may_echo = False
            return
        request.signal, received = number, now
        if not quiet:
            # Unbuffered, because the signal may interrupt a write; the terminal may be gone.
            message = b"\nalfa: saving progress before stopping; press Ctrl-C again to stop now.\n"
            with suppress(OSError):
                os.write(2, message)

    # Only the main thread receives signals.
    is_main = threading.current_thread() is threading.main_thread()
    with signal_handlers(handle) if is_main else nullcontext():
        try:
            yield request
        except KeyboardInterrupt:
            if hint is None:
                raise
            with suppress(OSError):
                if hint:
                    typer.echo(f"alfa: stopped; {hint}.", err=True)
            raise typer.Exit(request.exit_code) from None


@contextmanager
def signal_handlers(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM with a function until the end of the block."""
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
