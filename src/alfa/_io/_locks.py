"""Locks between processes, which the system releases when a process ends."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

# Errors of file systems without locks, such as some network file systems.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def locked(
    path: Path, *, busy: Exception, timeout: float = 0.2, remove: bool = True
) -> Iterator[None]:
    """Hold an exclusive lock, or none on a file system without locks.

    If another process holds the lock for `timeout` seconds, raise `busy`; `is_locked` of another
    process holds it briefly. The lock file is created with its folder, and removed afterwards
    unless `remove` is False.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=timeout, poll_interval=0.02, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise busy from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    try:
        yield
    finally:
        if remove:
            # Other processes that have opened the file notice its removal. Windows removes it on
            # release, and not while it is open.
            with contextlib.suppress(PermissionError):
                path.unlink(missing_ok=True)
        lock.release()


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock; False also if the file cannot be read."""
    from filelock import lock_descriptor

    try:
        with path.open("rb") as file:
            return not lock_descriptor(file.fileno(), blocking=False)
    except OSError:
        return False
