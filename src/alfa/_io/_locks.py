"""Locks between processes; the system releases them when their process ends."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# Errors of file systems without locks, such as some network disks.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def locked(
    path: Path, *, busy: Exception, timeout: float = 0.2, remove: bool = True
) -> Iterator[None]:
    """Hold an exclusive lock; file systems without locks are used without one.

    Args:
        path: the lock file; its folder is made if necessary. A file that a killed process left
            behind is not locked.
        busy: is raised if another process holds the lock.
        timeout: seconds to wait for it, at least long enough for `is_locked` of another process.
        remove: remove the lock file afterwards.
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
            # Other processes that have opened the file notice that it is gone. Windows removes it
            # on release, and not while it is open.
            with contextlib.suppress(PermissionError):
                path.unlink(missing_ok=True)
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; no if the file is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            return not _try_lock(file)
    except OSError:
        return False


def _try_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed, unless another process has done so."""
    from filelock import lock_descriptor

    try:
        return lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return True
