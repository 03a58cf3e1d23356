"""Locks between processes, which end with the process that holds them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


@contextmanager
def held(path: Path, *, otherwise: Exception) -> Iterator[None]:
    """Hold a lock file, which goes afterwards.

    Args:
        path: of the file.
        otherwise: is raised if another process holds it.
    """
    with path.open("a") as file:
        if not try_lock(file):
            raise otherwise
        try:
            yield
        finally:
            # Where there are locks, a file that is open can be removed, too.
            if fcntl is not None:
                path.unlink(missing_ok=True)
