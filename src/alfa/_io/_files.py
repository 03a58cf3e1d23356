"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alfa._io._durable import sync_folder


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Put the file's name into an error of the system, which a failed write leaves out."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_atomic(path: Path, content: bytes, *, previous: Path | None = None) -> None:
    """Write a file so that it is there completely or, after any crash, as it was before.

    Args:
        path: the file.
        content: of the file.
        previous: what the file that was there before is called then; it is lost by default. A
            crash can leave this one alone.
    """
    with named_errors(path):
        _write_atomic(path, content, previous)


def _write_atomic(path: Path, content: bytes, previous: Path | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file private; the result should be as readable as any other.
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


def check_writable(path: Path) -> None:
    """See before long work that its file can be written; leaves nothing behind.

    Args:
        path: the file; its folder need not be there yet.

    Raises:
        OSError: it cannot.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with named_errors(folder), tempfile.TemporaryFile(dir=folder):
        pass


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None where there is no file, and an empty one where it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
