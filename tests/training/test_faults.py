"""Faults around a run: alfa survives or reports each of them, and loses nothing."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.config import Experiment, parse_experiment
from alfa.data import Store, prepare
from alfa.data.sources import SOURCES
from alfa.errors import AlfaWarning, CheckpointError, DamagedError, DataError, Stopped
from alfa.runs import Checkpoint, Run
from alfa.training import Progress, train_run


def _interrupted(experiment: Experiment, path: Path, iteration: int) -> None:
    def on_progress(progress: Progress) -> None:
        if progress.iteration == iteration and progress.work is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(Run.new(path, experiment), on_progress=on_progress)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-50] ^= 8
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [_cut, _spoil, Path.unlink])
@pytest.mark.parametrize("iteration", [4, 5, 12])
def test_the_state_before_a_damaged_one_is_used(
    tiny, unbroken, assert_same, tmp_path, damage: Callable[[Path], None], iteration: int
) -> None:
    experiment, path = tiny("engine.checkpoint_every=1"), tmp_path / "run"
    _interrupted(experiment, path, iteration)
    newest = Run(path).files.checkpoint("last")
    damage(newest)
    if damage is Path.unlink:
        # A crash between the two renames leaves only the previous state.
        train_run(Run.new(path, experiment), resume=True)
    else:
        # A validation saves the state of its iteration again.
        before = 5 if iteration == 5 else iteration - 1
        told = rf"{newest} is damaged; alfa uses the checkpoint before it, of iteration {before}\."
        with pytest.warns(AlfaWarning, match=told):
            train_run(Run.new(path, experiment), resume=True)
    assert_same(path, unbroken(experiment))


def test_where_no_state_is_whole_the_newest_is_named(tiny, tmp_path) -> None:
    experiment, path = tiny("engine.checkpoint_every=1"), tmp_path / "run"
    _interrupted(experiment, path, 7)
    for name in ("last", "previous"):
        _spoil(Run(path).files.checkpoint(name))
    with pytest.raises(DamagedError, match=r"last\.safetensors is damaged.*its checksum"):
        train_run(Run.new(path, experiment), resume=True)


def test_the_state_before_one_that_a_disk_cannot_read_is_used(tiny, tmp_path, monkeypatch) -> None:
    experiment, run = tiny("engine.checkpoint_every=1"), Run(tmp_path / "run")
    _interrupted(experiment, run.path, 4)
    read = Path.read_bytes

    def broken(path: Path) -> bytes:
        if path == run.files.checkpoint("last"):
            raise OSError(code, os.strerror(code))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", broken)
    code = errno.EIO
    with pytest.warns(AlfaWarning, match=r"uses the checkpoint before it, of iteration 3\."):
        run.load_last()
    # The user can fix permissions.
    code = errno.EACCES
    with pytest.raises(CheckpointError, match="cannot be read: Permission denied"):
        run.load_last()


@pytest.mark.parametrize("number", [2, 5, 9, 16, 25])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_is_full_loses_nothing(
    tiny, unbroken, assert_same, tmp_path, monkeypatch, number: int, code: int
) -> None:
    experiment, path = tiny("engine.checkpoint_every=2"), tmp_path / "run"
    count, replace = 0, os.replace

    def full(*files: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(code, os.strerror(code))
        replace(*files)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            train_run(Run.new(path, experiment))
    assert str(path) in caught.value.filename
    train_run(Run.new(path, experiment), resume=True)
    assert_same(path, unbroken(experiment))


def test_metrics_that_a_full_disk_has_cut_off_are_written_again(
    tiny, unbroken, assert_same, tmp_path
) -> None:
    path = tmp_path / "run"
    _interrupted(tiny(), path, 10)
    content = Run(path).files.metrics.read_text()
    Run(path).files.metrics.write_text(content + content[: len(content) // 3])
    train_run(Run.new(path, tiny()), resume=True)
    assert_same(path, unbroken(tiny()))


def test_what_a_killed_process_was_writing_is_removed(tiny, tmp_path) -> None:
    path = tmp_path / "run"
    _interrupted(tiny(), path, 10)
    left = [path / ".result.json.abcd1234", path / "checkpoints" / ".last.safetensors.x_y2z3a4"]
    own = path / ".notes"
    for file in (*left, own):
        file.write_text("half of it")
    train_run(Run.new(path, tiny()), resume=True)
    assert not any(file.exists() for file in left)
    assert own.exists()


def test_a_clock_that_is_set_back_changes_nothing(
    tiny, unbroken, assert_same, tmp_path, monkeypatch
) -> None:
    experiment = tiny("engine.checkpoint_seconds=1e-9")
    with monkeypatch.context() as patch:
        rng = random.Random(0)
        patch.setattr(time, "time", lambda: rng.uniform(-1e9, 4e9))
        train_run(Run.new(tmp_path / "run", experiment))
    assert_same(tmp_path / "run", unbroken(experiment))
    result = Run(tmp_path / "run").result
    assert result is not None
    assert 0 < result["seconds"] < 600


@pytest.mark.parametrize("asked", [1, 4, 6, 12])
def test_a_run_that_is_asked_to_stop_keeps_everything(
    tiny, unbroken, assert_same, tmp_path, asked: int
) -> None:
    experiment, path, heard = tiny(), tmp_path / "run", []

    def should_stop() -> bool:
        heard.append(True)
        return len(heard) >= asked

    with pytest.raises(Stopped):
        train_run(Run.new(path, experiment), should_stop=should_stop)
    kept = Run(path).load_last()
    assert kept is not None
    # Validations also call `should_stop`.
    assert kept.progress["iteration"] == {1: 1, 4: 4, 6: 5, 12: 9}[asked]
    train_run(Run.new(path, experiment), resume=True)
    assert_same(path, unbroken(experiment))


@pytest.fixture
def pets(tmp_path, monkeypatch) -> Callable[..., Path]:
    """Prepare a small dataset and return the file of its images."""
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))

    def make(seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        for split in ("train", "val", "test"):
            for number in range(4):
                for image in range(6):
                    file = tmp_path / "raw" / split / f"{split}-{number}" / f"{image}.png"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    pixels = rng.integers(0, 255, (16, 16, 3), np.uint8)
                    Image.fromarray(pixels).save(file)
        source = SOURCES.get("folder")()
        raw, root = tmp_path / "raw", tmp_path / "data"
        store = prepare(source, raw, root=root, name="pets", size=16, workers=1, force=True)
        return store.path / "images.npy"

    return make


PETS = {
    "tasks": {"name": "images", "dataset": "pets", "way": 2, "shot": 1, "num_query": 1},
    "model": {"name": "conv4", "filters": 2},
    "inner": {"num_steps": 1},
    "outer": {"num_iterations": 6, "num_tasks": 1, "validate_every": 3, "num_val_tasks": 2},
    "test": {"num_tasks": 2, "ensemble": 1},
}


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(200)
        opened.write(b"\0" * 1000)
    os.utime(file, ns=(1, 1))


@pytest.mark.parametrize("change", [_truncate, _overwrite])
def test_a_store_that_is_changed_under_a_run_stops_it(pets, tmp_path, change) -> None:
    file, path, experiment = pets(), tmp_path / "run", parse_experiment(PETS)
    train_run(Run.new(tmp_path / "unbroken", experiment))

    def on_progress(progress: Progress) -> None:
        if progress.iteration == 4:
            change(file)

    with pytest.raises(DataError, match=r"images\.npy was changed while it was being read"):
        train_run(Run.new(path, experiment), on_progress=on_progress)

    # Every attempt to resume with the changed file fails.
    told = r"images\.npy differs from the prepared images" if change is _overwrite else "cannot be"
    for _ in range(2):
        with pytest.raises(DataError, match=told):
            train_run(Run.new(path, experiment), resume=True)

    pets()
    train_run(Run.new(path, experiment), resume=True)
    same = [Run(p).result or {} for p in (path, tmp_path / "unbroken")]
    assert same[0]["test"] == same[1]["test"]


def test_files_are_read_again_only_if_somebody_has_touched_them(
    pets, tmp_path, monkeypatch
) -> None:
    file, path, read, told = pets(), tmp_path / "run", [], []
    verify = Store.verify_pixels
    monkeypatch.setattr(Store, "verify_pixels", lambda store: read.append(store) or verify(store))
    _interrupted(parse_experiment(PETS), path, 4)
    for touch, times in ((False, 0), (True, 1), (False, 1)):
        if touch:
            os.utime(file, ns=(1, 1))
        with pytest.raises(Stopped):
            # Train one more iteration and save its state.
            train_run(
                Run.new(path, parse_experiment(PETS)),
                resume=True,
                should_stop=lambda: True,
                on_progress=lambda progress: told.append(str(progress.message)),
            )
        assert len(read) == times
        assert sum("comparing checksums" in text for text in told) == times


def test_a_store_that_is_prepared_anew_leaves_a_run_with_the_old_one(pets, tmp_path) -> None:
    pets()
    experiment = parse_experiment(PETS)
    train_run(Run.new(tmp_path / "unbroken", experiment))

    def on_progress(progress: Progress) -> None:
        if progress.iteration == 2:
            pets(seed=1)

    train_run(Run.new(tmp_path / "run", experiment), on_progress=on_progress)
    same = [Run(tmp_path / name).result or {} for name in ("run", "unbroken")]
    assert same[0]["test"] == same[1]["test"]


def test_other_data_than_a_run_has_begun_with_is_refused(pets, tmp_path) -> None:
    pets()
    _interrupted(parse_experiment(PETS), tmp_path / "run", 4)
    pets(seed=1)
    with pytest.raises(CheckpointError, match="the data differs from the data that"):
        train_run(Run.new(tmp_path / "run", parse_experiment(PETS)), resume=True)
    # The same images again are the same data.
    pets(seed=0)
    train_run(Run.new(tmp_path / "run", parse_experiment(PETS)), resume=True)


def test_a_checkpoint_with_a_foreign_state_is_refused(tiny, tmp_path) -> None:
    experiment, path = tiny(), tmp_path / "run"
    _interrupted(experiment, path, 10)
    kept = Run(path).load_checkpoint("last")
    Run(path).files.checkpoint("previous").unlink()
    wrong = {
        "iteration": [-1, "ten", None, 2.5],
        "seconds": ["long", None],
        "window": [3, ["low"]],
        "best": [[1], [{"iteration": "5", "score": 1.0, "loss": 1.0}]],
        "memory": [{**kept.progress["memory"], "tasks_at_once": 0}, {"mode": "none"}, []],
        "memory_budget": [-1.0],
    }
    others = [{**kept.progress, key: value} for key, values in wrong.items() for value in values]
    for progress in ({}, [], *others):
        Checkpoint(kept.tensors, kept.fingerprint, progress).save(
            Run(path).files.checkpoint("last")
        )
        with pytest.raises(DamagedError, match="damaged"):
            train_run(Run.new(path, experiment), resume=True)
    for key in kept.tensors:
        fewer = {k: v for k, v in kept.tensors.items() if k != key}
        Checkpoint(fewer, kept.fingerprint, kept.progress).save(Run(path).files.checkpoint("last"))
        with pytest.raises(DamagedError, match="damaged"):
            train_run(Run.new(path, experiment), resume=True)
