"""`alfa train` on several processes, and on several machines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alfa.train import Checkpoint, Run

# One task at a time, in doubles: any number of processes then gives the same bits.
EXACT = [
    *("--set", "engine.dtype=float64", "--set", "engine.tasks_at_once=1"),
    *("--set", "outer.num_iterations=60", "--set", "outer.validate_every=20"),
    *("--set", "engine.checkpoint_every=5", "--threads", "1"),
]
linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")


@pytest.fixture(scope="module")
def alone(tmp_path_factory, shell, settings) -> Path:
    path = tmp_path_factory.mktemp("alone") / "run"
    answer = shell("train", "sinusoid-alfa", "--out", path, *settings, *EXACT, "--json")
    assert answer.code == 0, answer.err
    return path


def _assert_same(path: Path, other: Path) -> None:
    own, expected = Run(path).read_metrics(), Run(other).read_metrics()
    assert [record["iteration"] for record in own] == [r["iteration"] for r in expected]
    for record, wanted in zip(own, expected, strict=True):
        assert record == pytest.approx(wanted, rel=1e-12)
    states: list[Checkpoint] = []
    for run in (Run(path), Run(other)):
        states.append(run.load_checkpoint("last", run.experiment()))
    assert all(states[0].tensors[k].equal(v) for k, v in states[1].tensors.items())


def _workers(path: Path, parent: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        is_own = str(path).encode() in words and int(folder.name) != parent
        if is_own and state != "Z":
            yield int(folder.name)


def _wait(done: Any, what: str) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@linux
def test_a_process_that_is_killed_is_started_anew(alone: Path, tmp_path, settings) -> None:
    path = tmp_path / "run"
    words = ["train", "sinusoid-alfa", "--out", str(path), *settings, *EXACT]
    words += ["--processes", "2", "--max-restarts", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "alfa", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        _wait(Run(path).checkpoint("last").is_file, "it does not begin")
        os.kill(max(_workers(path, parent.pid)), signal.SIGKILL)
        out, told = parent.communicate(timeout=120)
    assert parent.returncode == 0, told
    assert "another process of this run has ended" in told
    assert "Traceback" not in told
    assert f"written: {path}" in out
    _assert_same(path, alone)
    result = Run(path).read_result()
    assert result is not None
    assert result["engine"]["processes"] == 2


@linux
def test_processes_leave_with_their_parent(tmp_path, settings) -> None:
    path = tmp_path / "run"
    words = ["train", "sinusoid-alfa", "--out", str(path), *settings, *EXACT]
    words += ["--processes", "2", "--set", "outer.num_iterations=1000000"]
    with subprocess.Popen([sys.executable, "-m", "alfa", *words, "--json"]) as parent:
        _wait(Run(path).checkpoint("last").is_file, "it does not begin")
        assert len(list(_workers(path, parent.pid))) == 2
        parent.kill()
    _wait(lambda: not list(_workers(path, parent.pid)), "processes have outlived their parent")
    assert not Run(path).is_busy
    assert Run(path).load_last(Run(path).experiment()) is not None


def test_two_machines_give_the_same_numbers(alone: Path, tmp_path, settings) -> None:
    path = tmp_path / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"),
        *("--local-addr", "127.0.0.1", "-m", "alfa"),
    ]
    words = ["train", "sinusoid-alfa", "--out", str(path), *settings, *EXACT, "--json"]
    machines = [
        subprocess.Popen(
            [*launcher, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [machine.communicate(timeout=120) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], told
    # One of them speaks for both.
    (out,) = [out for out, _ in told if out]
    assert json.loads(out)["engine"]["processes"] == 2
    _assert_same(path, alone)


def test_what_is_wrong_is_said_once_before_anything_starts(refused, alone, settings) -> None:
    told = refused("train", "sinusoid-alfa", "--out", alone, *settings, "--processes", "2")
    assert "is not empty" in told


def test_processes_are_left_to_torchrun_where_it_has_started_them(
    refused, tmp_path, settings, monkeypatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    words = ["train", "sinusoid-alfa", "--out", tmp_path / "run", *settings, "--processes", "2"]
    assert "leave it to torchrun" in refused(*words)


def test_a_run_that_is_there_is_gone_on_with(alfa, tmp_path, settings) -> None:
    words = ["train", "sinusoid-maml", "--out", tmp_path / "run", *settings, "--or-resume"]
    first, second = alfa(*words, "--json"), alfa(*words, "--json")
    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["test"] == json.loads(second.out)["test"]
