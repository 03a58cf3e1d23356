"""Atomic and durable writing of files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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
