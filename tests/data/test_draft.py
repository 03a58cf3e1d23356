"""Writing a store resumes after a crash at any moment."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from alfa.data import Store
from alfa.data._draft import Draft
from alfa.data._prepare import PrepareProgress as Progress
from alfa.data._prepare import prepare
from alfa.data.sources._base import Item, Listing, Source, Workspace
from alfa.errors import DataError

BAD = np.zeros((0, 4), np.uint8)


class Arrays(Source):
    """Eight classes of 40 images; every second class has an unusable one."""

    title, size, num_channels = "Arrays", 4, 1
    mean, std = (0.5,), (0.5,)

    def __init__(self) -> None:
        images = np.random.default_rng(0).integers(0, 256, (8, 40, 4, 4), np.uint8)
        self.classes = [
            {f"{number}/{image}.png": pixels for image, pixels in enumerate(row)}
            for number, row in enumerate(images)
        ]
        for number in (0, 2, 4, 6):
            self.classes[number][f"{number}/{number}.png"] = BAD

    def find(self, path: Path, *, work: Workspace) -> Listing:
        named = {
            f"class{number}": [
                Item(name, lambda pixels=pixels: pixels) for name, pixels in images.items()
            ]
            for number, images in enumerate(self.classes)
        }
        return Listing({"train": named})


class Stopped(BaseException):
    pass


def stop_at(number: int) -> Callable[[Progress], None]:
    def on_progress(progress: Progress) -> None:
        if progress.total and progress.done >= number:
            raise Stopped

    return on_progress


@pytest.fixture
def source() -> Arrays:
    return Arrays()


@pytest.fixture
def run(source: Arrays, tmp_path: Path) -> Callable[..., Store]:
    def prepare_many(root: str = "data", *, at: Path = tmp_path, **options) -> Store:
        options = {"name": "many", "on_problem": "skip", **options}
        return prepare(source, at, root=tmp_path / root, **options)

    return prepare_many


@pytest.fixture
def broken(run, tmp_path: Path) -> Path:
    """The draft of a run that was stopped in its last class."""
    with pytest.raises(Stopped):
        run(on_progress=stop_at(300))
    return tmp_path / "data/stores/.many-4.partial"


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def names(root: Path) -> list[str]:
    """Return all stores, including unfinished ones."""
    return sorted(path.name for path in (root / "stores").iterdir())


def test_a_stopped_run_goes_on_to_the_same_files(run, tmp_path: Path) -> None:
    whole = files(run("whole").path)
    for number in (1, 41, 100, 200, 319):
        with pytest.raises(Stopped):
            run("broken", on_progress=stop_at(number))
        assert names(tmp_path / "broken") == [".many-4.partial"]
    told: list[Progress] = []
    assert files(run("broken", on_progress=told.append).path) == whole
    assert told[1] == Progress(280, 320, "resuming after 7 of 8 classes")
    assert names(tmp_path / "broken") == ["many-4"]


def test_a_draft_that_is_damaged_anywhere_is_gone_on_with(run, broken: Path, tmp_path) -> None:
    """The result does not depend on the damage of the draft."""
    kept = shutil.copytree(broken, tmp_path / "kept")
    whole = files(run().path)
    rng = random.Random(0)
    for turn in range(30):
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(kept, broken)
        path = broken / rng.choice(["journal.jsonl", "store/images.npy"])
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        if turn % 2:
            del content[place:]
        else:
            content[place] ^= 255
        path.write_bytes(bytes(content))
        assert files(run().path) == whole


@pytest.mark.usefixtures("broken")
def test_an_image_put_right_in_the_meantime_is_used(run, source: Arrays) -> None:
    source.classes[2]["2/2.png"] = np.full((4, 4), 7, np.uint8)
    store = run()
    assert (store.images[store.items().index("2/2.png")] == 7).all()
    assert len(store.index.left_out) == 3


@pytest.mark.usefixtures("broken")
def test_a_class_with_other_images_is_done_again(run, source: Arrays) -> None:
    source.classes[1] = {"other.png": np.full((4, 4), 7, np.uint8)}
    told: list[Progress] = []
    store = run(on_progress=told.append)
    assert told[1].message == "resuming after 1 of 8 classes"
    assert store.items()[39] == "other.png"
    assert (store.images[39] == 7).all()
    assert store.verify() == []


@pytest.mark.usefixtures("broken")
def test_what_another_place_has_left_behind_is_not_used(run, tmp_path: Path) -> None:
    told: list[Progress] = []
    run(at=tmp_path / "elsewhere", on_progress=told.append)
    assert told[1] == Progress(0, 320)


def test_a_forced_run_goes_on_with_a_forced_one_only(run) -> None:
    for force, at in ((False, 300), (True, 100), (True, 300)):
        with pytest.raises(Stopped):
            run(force=force, on_progress=stop_at(at))
    told: list[Progress] = []
    run(force=True, on_progress=told.append)
    assert told[1].message == "resuming after 7 of 8 classes"


def test_two_processes_cannot_prepare_the_same(run, tmp_path: Path) -> None:
    told = "another process is preparing many-4; wait until it finishes"
    place = tmp_path / "data/stores/many-4"
    with Draft(place, shape=(1, 4, 4), key=""), pytest.raises(DataError, match=told):
        run()
    assert run().verify() == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds open files in /proc")
def test_nothing_of_a_store_is_open_when_it_is_moved(run, monkeypatch) -> None:
    """Windows would refuse."""
    moved = []
    rename = Path.rename

    def watched(path: Path, target: Path) -> Path:
        opened = {os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.exists()}
        moved.append([name for name in opened if name.startswith(f"{path}{os.sep}")])
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    assert run().verify() == []
    assert moved == [[]]


def test_a_disk_that_cannot_make_folders_last_is_used(run, monkeypatch) -> None:
    fsync = os.fsync

    def refuse_folders(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(file)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    assert run().verify() == []


# Imports once, and forks a process that prepares for every line of its input.
_SCRIPT = """
import os, sys, time
from pathlib import Path
import numpy as np
from alfa.data._prepare import prepare
from alfa.data.sources._base import Item, Listing, Source

class Slow(Source):
    title, size = "Slow", 8

    def find(self, path, *, work):
        def item(number):
            def read():
                time.sleep(0.001)
                return np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
            return Item(f"{number}.png", read)
        return Listing({"train": {
            str(name): [item(30 * name + number) for number in range(30)] for name in range(20)
        }})

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        prepare(Slow(), Path("."), root=Path(line.strip()), name="slow", workers=2)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def test_a_process_killed_at_random_moments_goes_on_to_the_same_files(tmp_path: Path) -> None:
    rng = random.Random(os.urandom(8))
    moments = [rng.uniform(0, 0.25) for _ in range(12)]
    command = [sys.executable, "-c", _SCRIPT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:

        def run(root: str, kill_after: float | None = None) -> int:
            """Prepare in a process, which may be killed, and return its exit code."""
            print(tmp_path / root, file=process.stdin, flush=True)
            child = int(process.stdout.readline())
            if kill_after is not None:
                time.sleep(kill_after)
                # On an idle machine it may have ended by then.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(int(process.stdout.readline()))

        assert run("whole") == 0
        ends = [run("broken", kill_after=moment) for moment in moments]
        assert run("broken") == 0
        process.stdin.close()
    assert -signal.SIGKILL in ends
    assert names(tmp_path / "broken") == ["slow-8"]
    whole, broken = (files(tmp_path / root / "stores/slow-8") for root in ("whole", "broken"))
    assert whole == broken, f"killed after {moments} seconds"
