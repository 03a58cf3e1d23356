"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import threading
import time

# Seconds between two looks at whether it is still there.
_WATCH = 0.5
# Where a process finds the number of the one that has started it.
_STARTED_BY = "ALFA_STARTED_BY"


def name_parent() -> None:
    """Let the processes that are started from here on know whose they are."""
    os.environ[_STARTED_BY] = str(os.getpid())


def has_named_parent() -> bool:
    """Whether this process was told whose it is, and does not watch it yet."""
    return _STARTED_BY in os.environ


def leave_with_parent(parent: int | None = None) -> None:
    """Leave when whoever started this process is gone: nobody else would ever end it.

    Args:
        parent: the number of that process. It may be gone already, while this one was still
            importing; so it is best told by itself, here or by `name_parent`. It must have started
            this one directly: a process between the two is another parent.
    """
    # What this process starts in its turn has another parent.
    named = os.environ.pop(_STARTED_BY, None)
    if parent is None:
        # A user may have set it to anything.
        parent = int(named) if named is not None and named.isdecimal() else os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH)
    os._exit(1)
