"""Parallel decoding gives the same result in threads and processes."""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.data import _workers
from alfa.data._workers import decode_all, decode_chunks
from alfa.data.sources._base import Item
from alfa.errors import DataError


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    """Files, of which one is damaged, one is grey, and one is not there."""
    found = []
    for number in range(11):
        file = io.BytesIO()
        pixels = np.random.default_rng(number).integers(0, 256, (5, 5, 3), np.uint8)
        Image.fromarray(pixels).convert("L" if number == 3 else "RGB").save(file, "PNG")
        path = tmp_path / f"{number}.png"
        if number != 8:
            path.write_bytes(file.getvalue()[: 40 if number == 5 else None])
        found.append(Item(path.name, path.read_bytes))
    return found


def decoded(items: list[Item], *, workers: int, total: int) -> list:
    chunks = [items[first : first + 2] for first in range(0, len(items), 2)]
    results = decode_chunks(chunks, size=5, num_channels=3, workers=workers, total=total)
    return [(x.pixels.tolist(), x.left_out, x.changed) for x in results]


@pytest.mark.parametrize("kind", ["_in_threads", "_in_processes"])
def test_chunks_come_in_their_order_however_they_are_decoded(items, monkeypatch, kind) -> None:
    used = []
    work = getattr(_workers, kind)
    monkeypatch.setattr(_workers, kind, lambda *a: used.append(kind) or work(*a))
    total = _workers.PROCESSES_FROM if kind == "_in_processes" else len(items)
    one_by_one = [
        decode_all(items[first : first + 2], size=5, num_channels=3) for first in range(0, 11, 2)
    ]
    results = decoded(items, workers=2, total=total)
    assert results == [(x.pixels.tolist(), x.left_out, x.changed) for x in one_by_one]
    assert used == [kind]
    assert [len(pixels) for pixels, _, _ in results] == [2, 2, 1, 2, 1, 1]
    assert results[1][2] == [(1, "gray converted to RGB")]
    assert results[4][1] == [(0, "cannot be read (No such file or directory)")]


def test_processes_are_for_many_files_and_several_workers_only(items, monkeypatch) -> None:
    monkeypatch.setattr(_workers, "_in_processes", lambda *a: pytest.fail("processes"))
    many = _workers.PROCESSES_FROM
    pixels = [Item("0", partial(np.zeros, (5, 5, 3), np.uint8))]
    not_to_be_sent = [Item("0", lambda: items[0].read())]
    decoded(items, workers=2, total=many - 1)
    decoded(items, workers=1, total=many)
    decoded(pixels, workers=2, total=many)
    decoded(not_to_be_sent, workers=2, total=many)
    decoded([], workers=2, total=many)


@pytest.mark.parametrize("total", [1, 10**6], ids=["threads", "processes"])
def test_whoever_stops_listening_stops_the_workers(items, total: int) -> None:
    drawn = []

    def chunks():
        for number in range(500):
            drawn.append(number)
            yield items[:1]

    results = decode_chunks(chunks(), size=5, num_channels=3, workers=2, total=total)
    next(results)
    results.close()
    assert len(drawn) <= 6
    assert multiprocessing.active_children() == []


def test_a_first_image_that_is_damaged_does_not_keep_from_processes(items, monkeypatch) -> None:
    used = []
    monkeypatch.setattr(_workers, "_in_processes", lambda *a: used.append(a) or iter(()))
    missing = Item("0", Path("nowhere.png").read_bytes)
    decoded([missing, *items], workers=2, total=_workers.PROCESSES_FROM)
    assert len(used) == 1


def _die(parent: int) -> str:
    """Code that kills the process it runs in, unless that is the parent."""
    return f"import os; assert os.getpid() != {parent}; os.kill(os.getpid(), 9)"


def test_a_process_that_is_killed_is_a_sentence(items) -> None:
    # As the system does where memory is short.
    deadly = Item("12", partial(exec, _die(os.getpid())))
    with pytest.raises(DataError, match=r"^a decoding process ended unexpectedly.*--workers 1"):
        decoded([*items, deadly], workers=2, total=_workers.PROCESSES_FROM)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the system has no /proc to look in")
def test_processes_do_not_run_the_script_again_and_end_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # No `if __name__ == "__main__"`, as people write scripts.
    script.write_text(
        """
import os, sys
from pathlib import Path
import numpy as np
from PIL import Image
from alfa.data import prepare, _workers
from alfa.data.sources import Folder, Item
print("begun")
_workers.PROCESSES_FROM = 1
root = Path(sys.argv[1])
pets = root / "pets"
for name in "abc":
    (pets / name).mkdir(parents=True)
    for number in range(3):
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(pets / name / f"{number}.png")
store = prepare(Folder(split="test"), pets, root=root, size=4, name="pets", workers=2)
print(len(store.images))
print("prepared", file=sys.stderr, flush=True)
item = Item("0", Path(sys.argv[0]).read_bytes)
chunks = ([item] for _ in range(100))
results = _workers.decode_chunks(chunks, size=5, num_channels=3, workers=2, total=10**6)
next(results)
print(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(), flush=True)
os.kill(os.getpid(), 9)
"""
    )
    command = [sys.executable, script, tmp_path / "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    begun, num_images, *numbers = done.stdout.split()
    assert (begun, num_images) == ("begun", "9")
    # loky reports the semaphores of the killed process afterwards.
    assert done.stderr.startswith("prepared\n")
    children = [int(number) for number in numbers]
    assert children
    # Far less than the minute after which they would give up by themselves.
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
