"""Names of files that outlast a loss of power."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make the names in a folder last, where the system can do so.

    Windows cannot open a folder, and some network disks have nothing to do for one.
    """
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
