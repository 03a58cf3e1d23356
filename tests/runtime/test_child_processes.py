"""Child processes that exit when their parent does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Starts a child, prints its process id, waits for it if asked, and exits.
_PARENT = """
import os, subprocess, sys
from alfa._runtime import name_parent
if {named}:
    name_parent()
child = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.DEVNULL)
print(child.pid, flush=True)
{wait}
os._exit(0)
"""
_CHILD = """
import os, sys, time
from pathlib import Path
from alfa._runtime import leave_with_parent
{wait}
leave_with_parent({parent})
Path(sys.argv[0]).with_name("watches").touch()
time.sleep(60)
"""
# A slow import, during which the parent exits.
_ORPHANED = """
parent = os.getppid()
Path(sys.argv[0]).with_name("began").touch()
while os.getppid() == parent:
    time.sleep(0.01)
"""
_UNTIL = """
import time
from pathlib import Path
while not Path(sys.argv[1]).with_name("{file}").exists():
    time.sleep(0.01)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="the system has no /proc")


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("late", [False, True], ids=["watched", "gone before the child looks"])
def test_a_child_ends_with_its_parent(late: bool, tmp_path: Path) -> None:
    child, parent = tmp_path / "child.py", tmp_path / "parent.py"
    child.write_text(_CHILD.format(wait=_ORPHANED if late else "", parent=""))
    until = _UNTIL.format(file="began" if late else "watches")
    parent.write_text(_PARENT.format(named=True, wait=until))
    done = subprocess.run(
        [sys.executable, parent, child], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    pid, deadline = int(done.stdout), time.monotonic() + 30
    while _lives(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(pid)


def test_a_command_looks_before_it_imports(tmp_path: Path) -> None:
    """If the named parent is not its parent, it exits before it prints anything."""
    words = [sys.executable, "-X", "importtime", "-m", "alfa", "train", "nowhere"]
    environment = {**os.environ, "ALFA_STARTED_BY": "1" if os.getpid() != 1 else "2"}
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "torch" not in done.stderr
    assert "nowhere" not in done.stderr


def test_what_a_child_starts_has_another_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    from alfa import _runtime as parent

    watched: list[int] = []
    monkeypatch.setattr(parent, "_watch", watched.append)
    monkeypatch.setenv("ALFA_STARTED_BY", "123")
    parent.leave_with_parent()
    parent.leave_with_parent()
    parent.leave_with_parent(456)
    # An invalid value from the user is ignored.
    monkeypatch.setenv("ALFA_STARTED_BY", "x")
    parent.leave_with_parent()
    deadline = time.monotonic() + 30
    while len(watched) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(watched) == sorted([123, os.getppid(), 456, os.getppid()])
