"""Atomic, durable files, and locks that the system releases when a process ends."""

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Errors of file systems without locks, such as some network file systems.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError, which a failed write lacks."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_atomic(path: Path, content: bytes, *, previous: Path | None = None) -> None:
    """Write a file completely or, if the process or machine fails, leave it as it was.

    `previous` is the new name of the old file, which is otherwise replaced. A crash can leave
    only the file `previous`.
    """
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp makes the file private; give it the usual permissions.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            if previous is not None and path.is_file():
                os.replace(path, previous)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def sync_folder(path: Path) -> None:
    """Make the file names in a folder durable, if the system supports it."""
    # Windows cannot open a folder, and some network file systems cannot sync one.
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_writable(path: Path) -> None:
    """Raise an OSError unless the file can be written; create nothing."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with named_errors(folder), tempfile.TemporaryFile(dir=folder):
        pass


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; return None if the file is missing, and {} if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


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
