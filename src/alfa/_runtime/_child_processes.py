"""Child processes that exit when their parent does."""

from __future__ import annotations

import os
import threading
import time

# Seconds between two checks of the parent.
_POLL_SECONDS = 0.5
# The environment variable with the parent's process id.
_PARENT = "ALFA_STARTED_BY"


def name_parent() -> None:
    """Tell the child processes that start from now on the id of this process."""
    os.environ[_PARENT] = str(os.getpid())


def has_named_parent() -> bool:
    """Return True if the parent called `name_parent` and this process does not watch it yet."""
    return _PARENT in os.environ


def leave_with_parent(parent: int | None = None) -> None:
    """Exit this process when its direct parent is gone, in a background thread.

    The default `parent` is the id from `name_parent`, or else the current parent. An id is safer,
    because the parent may exit while this process still imports.
    """
    # Child processes of this one have another parent.
    named = os.environ.pop(_PARENT, None)
    if parent is None:
        # A user may have set the variable to anything.
        parent = int(named) if named is not None and named.isdecimal() else os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
