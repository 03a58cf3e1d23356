"""Atomic, durable files, and locks."""

from alfa._io._files import (
    check_writable,
    named_errors,
    read_json,
    sync_folder,
    write_atomic,
    write_json,
)
from alfa._io._locks import is_locked, locked

__all__ = [
    "check_writable",
    "is_locked",
    "locked",
    "named_errors",
    "read_json",
    "sync_folder",
    "write_atomic",
    "write_json",
]
