"""How a user or a scheduler stops a long command without losing anything."""

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

# What ends a process that another one has left alone, unlike 2: to start all of them anew helps.
LOST = 75
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds for which a launcher may still be passing on what was sent to all processes at once.
_ECHO = 2.0


class Wish:
    """Whether somebody has asked to stop.

    Attributes:
        signal: how they did; None if nobody has.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def code(self) -> int:
        """What a command that was stopped ends with."""
        return 128 + (self.signal or signal.SIGINT)

    def tell(self, hint: str) -> None:
        """Say that work has stopped, and how it goes on."""
        with suppress(OSError):
            typer.echo(f"alfa: stopped; {hint}.", err=True)


def code_of(error: Exception) -> int:
    """What a command ends with after an error that the user can put right."""
    return LOST if isinstance(error, LostError) else 2


@contextmanager
def stoppable(*, quiet: bool = False) -> Iterator[Wish]:
    """Take SIGINT and SIGTERM as the wish to stop soon; the second one stops at once.

    A process of a launcher gets a signal that is sent to all of them twice, which is one wish.

    Args:
        quiet: say nothing when it comes.
    """
    from alfa.train import is_launched

    wish, heard, may_echo = Wish(), 0.0, is_launched()

    def heed(number: int, frame: FrameType | None) -> None:
        nonlocal heard, may_echo
        now = time.monotonic()
        if wish():
            if not may_echo or now - heard > _ECHO:
                raise KeyboardInterrupt
            may_echo = False
            return
        wish.signal, heard = number, now
        if not quiet:
            # Whatever is being written at this moment must not be written into.
            told = b"\nalfa: stopping as soon as everything is kept; once more stops at once.\n"
            # Nobody may be there to read it, and everything must be kept all the same.
            with suppress(OSError):
                os.write(2, told)

    if threading.current_thread() is not threading.main_thread():
        # Only the main thread is sent signals.
        yield wish
        return
    before = {number: signal.signal(number, heed) for number in _SIGNALS}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
