"""Stopping a command: what was done is kept, and the second time it leaves at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from alfa.cli import stopping
from alfa.cli.stopping import stoppable
from alfa.train import Run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_wish_and_the_second_an_order(number: int, capfd) -> None:
    before = signal.getsignal(number)
    with stoppable() as wish:
        assert not wish()
        os.kill(os.getpid(), number)
        assert wish()
        assert wish.code == 128 + number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert "stopping as soon as everything is kept" in capfd.readouterr().err


def test_a_launcher_that_passes_a_signal_on_gives_no_order(monkeypatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    with stoppable(quiet=True) as wish:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert wish()
        # Once more, and it is one.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(stopping, "_ECHO", -1.0)
    with stoppable(quiet=True):
        os.kill(os.getpid(), signal.SIGTERM)
        # Some time later, nothing is passed on any more.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_who_cannot_be_told_is_heard_all_the_same(monkeypatch) -> None:
    def gone(*words: object) -> int:
        raise BrokenPipeError

    with stoppable() as wish:
        monkeypatch.setattr(os, "write", gone)
        os.kill(os.getpid(), signal.SIGTERM)
        assert wish()


def test_who_wants_silence_gets_it(capfd) -> None:
    with stoppable(quiet=True):
        os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == ""


def test_other_threads_are_never_asked() -> None:
    heard: list[bool] = []

    def work() -> None:
        with stoppable() as wish:
            heard.append(wish())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_training_that_is_stopped_goes_on(number: int, alfa, tmp_path, settings) -> None:
    path = tmp_path / "run"
    long = [*settings, "--set", "outer.num_iterations=100000", "--set", "outer.validate_every=5000"]
    with subprocess.Popen(
        [sys.executable, "-m", "alfa", "train", "sinusoid-maml", "--out", path, *long],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _wait_for(path / "config.toml")
        time.sleep(0.5)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"alfa: stopped; go on with `alfa train --resume {path}`." in told
    assert "Traceback" not in told
    kept = Run(path).load_last(Run(path).experiment())
    assert kept is not None
    done = kept.progress["iteration"]
    wanted = f"outer.num_iterations={done + 3}"
    assert alfa("train", "--resume", path, "--set", wanted, "--json").code == 0


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)
