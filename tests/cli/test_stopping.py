"""Stopping a command: the first signal saves the progress, and the second exits at once."""

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
from alfa.runs import Run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request_and_the_second_an_order(number: int, capfd) -> None:
    before = signal.getsignal(number)
    with stoppable() as request:
        assert not request()
        os.kill(os.getpid(), number)
        assert request()
        assert request.exit_code == 128 + number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert "saving progress before stopping" in capfd.readouterr().err


def test_a_launcher_that_passes_a_signal_on_gives_no_order(monkeypatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    with stoppable(quiet=True) as request:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert request()
        # A third signal is an order to stop.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(stopping, "_ECHO_SECONDS", -1.0)
    with stoppable(quiet=True):
        os.kill(os.getpid(), signal.SIGTERM)
        # After the echo period, a second signal is not a forwarded one.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_who_cannot_be_told_is_heard_all_the_same(monkeypatch) -> None:
    def gone(*words: object) -> int:
        raise BrokenPipeError

    with stoppable() as request:
        monkeypatch.setattr(os, "write", gone)
        os.kill(os.getpid(), signal.SIGTERM)
        assert request()


def test_who_wants_silence_gets_it(capfd) -> None:
    with stoppable(quiet=True):
        os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == ""


def test_other_threads_are_never_asked() -> None:
    heard: list[bool] = []

    def work() -> None:
        with stoppable() as request:
            heard.append(request())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [False]


def test_a_training_that_is_stopped_can_be_resumed(alfa, tmp_path, settings) -> None:
    """With SIGINT; test_launch.py covers SIGTERM."""
    path = tmp_path / "run"
    long = [*settings, "--set", "outer.num_iterations=100000", "--set", "outer.validate_every=5000"]
    with subprocess.Popen(
        [sys.executable, "-m", "alfa", "train", "sinusoid", "--out", path, *long],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _wait_for(path / "config.toml")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert f"alfa: stopped; resume it with `alfa train --resume {path}`." in told
    assert "Traceback" not in told
    kept = Run(path).load_last()
    assert kept is not None
    done = kept.progress["iteration"]
    wanted = f"outer.num_iterations={done + 3}"
    assert alfa("train", "--resume", path, "--set", wanted, "--json").code == 0


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)
