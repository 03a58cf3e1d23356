"""How a user or a scheduler stops a long command without losing anything."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
        typer.echo(f"alfa: stopped; {hint}.", err=True)


@contextmanager
def stoppable(*, quiet: bool = False) -> Iterator[Wish]:
    """Take SIGINT and SIGTERM as the wish to stop soon; the second one stops at once.

    Args:
        quiet: say nothing when it comes.
    """
    wish = Wish()

    def heed(number: int, frame: FrameType | None) -> None:
        if wish():
            raise KeyboardInterrupt
        wish.signal = number
        if not quiet:
            # Whatever is being written at this moment must not be written into.
            told = b"\nalfa: stopping as soon as everything is kept; once more stops at once.\n"
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
