"""Locks between processes, which end with the process that holds them."""

from __future__ import annotations

import errno
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has other locks.
    fcntl = None  # type: ignore[assignment]


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed.

    Returns:
        Whether it could be locked: another process may have done so. Where the system has no such
        locks, it always can.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems have none.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise
    return True
