"""Locks between processes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from alfa import lock
from alfa.lock import held, open_locked, try_lock

fcntl = pytest.importorskip("fcntl", reason="there are no such locks on this system")


@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get
)
def test_a_disk_without_locks_is_used_without(number: int, tmp_path: Path, monkeypatch) -> None:
    def flock(*arguments: object) -> None:
        raise OSError(number, "there are none")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "file").open("a") as file:
        assert try_lock(file)
    with held(tmp_path / "file", otherwise=RuntimeError()):
        pass


def test_another_error_is_one(tmp_path: Path, monkeypatch) -> None:
    def flock(*arguments: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="broken"):
        open_locked(tmp_path / "file")


def test_one_holds_it_and_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with held(path, otherwise=RuntimeError("busy")):
        assert open_locked(path) is None
        with pytest.raises(RuntimeError, match="busy"), held(path, otherwise=RuntimeError("busy")):
            pass
        assert path.exists()
    assert not path.exists()


def test_a_file_that_was_removed_before_it_could_be_locked_is_not_held(
    tmp_path: Path, monkeypatch
) -> None:
    """Otherwise a third one makes the file anew, and holds it as well."""
    path = tmp_path / "file"
    locked: list[int] = []

    def late(file) -> bool:
        if not locked:
            # The holder removes it at the last moment.
            path.unlink()
        locked.append(file.fileno())
        return try_lock(file)

    monkeypatch.setattr(lock, "try_lock", late)
    mine = open_locked(path)
    assert mine is not None
    assert len(locked) == 2
    monkeypatch.undo()
    assert open_locked(path) is None
    mine.close()
