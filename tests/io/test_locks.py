"""Locks between processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alfa._io import is_locked, locked

fcntl = pytest.importorskip("fcntl", reason="there are no such locks on this system")
BUSY = RuntimeError("busy")


def failing_flock(number: int):
    def flock(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get
)
def test_a_disk_without_locks_is_used_without(number: int, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr(fcntl, "flock", failing_flock(number))
    assert not is_locked(path)
    for _ in range(2):
        with locked(path, busy=BUSY):
            assert not is_locked(path)
        assert not path.exists()


def test_another_error_is_raised(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(fcntl, "flock", failing_flock(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), locked(tmp_path / "x", busy=BUSY):
        pass


@pytest.mark.parametrize("remove", [True, False])
def test_one_process_holds_it(tmp_path: Path, remove: bool) -> None:
    path = tmp_path / "deep" / "file"
    assert not is_locked(path)
    with locked(path, busy=BUSY, remove=remove):
        assert is_locked(path)
        with pytest.raises(RuntimeError, match="busy"), locked(path, busy=BUSY, timeout=0):
            pass
        assert path.exists()
    assert path.exists() is not remove
    assert not is_locked(path)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    script = (
        "import sys, time; from pathlib import Path; from alfa._io import locked\n"
        "with locked(Path(sys.argv[1]), busy=OSError()): print(flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert is_locked(path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.exists()
    with locked(path, busy=BUSY):
        pass
    assert not path.exists()


def test_a_file_that_was_removed_before_it_could_be_locked_is_not_held(
    tmp_path: Path, monkeypatch
) -> None:
    """Otherwise a third process creates the file again and holds it, too."""
    path = tmp_path / "file"
    flock, calls = fcntl.flock, []

    def late(*arguments: int) -> None:
        if not calls:
            # The holder removes the file at the last moment.
            path.unlink()
        calls.append(arguments)
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(path, busy=BUSY):
        assert len(calls) == 2
        assert is_locked(path)
