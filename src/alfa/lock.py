"""Locks between processes, which end with the process that holds them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has other locks.
    fcntl = None  # type: ignore[assignment]


# What file systems without locks answer, such as some on networks.
_WITHOUT = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


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
        if error.errno not in _WITHOUT:
            raise
    return True


def open_locked(path: Path, mode: str = "a") -> IO[Any] | None:
    """Open a file that may be removed by whoever holds it, and lock it until it is closed.

    Returns:
        The file; None if another process holds it.
    """
    while True:
        file = path.open(mode)
        try:
            if not try_lock(file):
                file.close()
                return None
            if _is_at(file, path):
                return file
        except BaseException:
            file.close()
            raise
        # It was removed between being opened and being locked: who comes next makes another one.
        file.close()


def _is_at(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def held(path: Path, *, otherwise: Exception) -> Iterator[None]:
    """Hold a lock file, which goes afterwards.

    Args:
        path: of the file.
        otherwise: is raised if another process holds it.
    """
    file = open_locked(path)
    if file is None:
        raise otherwise
    with file:
        try:
            yield
        finally:
            # Where there are locks, a file that is open can be removed, too.
            if fcntl is not None:
                path.unlink(missing_ok=True)
