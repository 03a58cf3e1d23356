"""`alfa train` on several processes, and on several machines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors import safe_open
from safetensors.torch import load_file

from alfa._distributed import Processes
from alfa.cli import launch
from alfa.cli.main import main
from alfa.cli.train import must_resume
from alfa.config import compose
from alfa.data import Sinusoids
from alfa.runs import Run

# With one task at a time and double precision, any number of processes gives the same bits.
EXACT = [
    *("--set", "engine.dtype=float64", "--set", "engine.tasks_at_once=1"),
    *("--set", "outer.num_iterations=60", "--set", "outer.validate_every=20"),
    *("--set", "engine.checkpoint_every=5", "--threads", "1"),
]
# Imported by every process of a run. The first process that has drawn half of the tasks dies;
# restarted processes do not.
_FATAL = """
import os, signal
from alfa.data import Sinusoids

draw = Sinusoids.episode

def fatal(self, first, *, split="train", **options):
    if split == "train" and first >= 120:
        try:
            os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return draw(self, first, split=split, **options)

Sinusoids.episode = fatal
"""
linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")


def _train_alone(path: Path, *words: str, num_iterations: int = 60) -> Path:
    longer = ["--set", f"outer.num_iterations={num_iterations}"]
    with pytest.raises(SystemExit) as caught:
        main(["train", "sinusoid", "--out", str(path), *words, *EXACT, *longer, "--json"])
    assert caught.value.code == 0
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory, settings) -> Path:
    return _train_alone(tmp_path_factory.mktemp("alone") / "run", *settings)


def _assert_same(path: Path, other: Path, *, num_iterations: int = 60) -> None:
    """Check that both runs have the same metrics of whole epochs, and the same final state."""
    own, expected = (
        [r for r in Run(run).metrics if r["iteration"] in range(0, num_iterations + 1, 20)]
        for run in (path, other)
    )
    assert [record["iteration"] for record in own] == [r["iteration"] for r in expected]
    for record, wanted in zip(own, expected, strict=True):
        assert record == pytest.approx(wanted, rel=1e-12)
    # Read the files directly: the configuration would import the fatal plugin in this process.
    states = [load_file(Run(folder).files.checkpoint("last")) for folder in (path, other)]
    assert states[0].keys() == states[1].keys()
    assert all(states[0][name].equal(tensor) for name, tensor in states[1].items())


def _workers(path: Path, *parents: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        is_own = str(path).encode() in words and int(folder.name) not in parents
        if is_own and state != "Z":
            yield int(folder.name)


@pytest.fixture
def fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a run that kills one of its processes."""
    marker = tmp_path / "was-killed"
    (tmp_path / "fatal_for_one.py").write_text(_FATAL.format(marker=str(marker)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return ["--set", 'plugins=["fatal_for_one"]']


def _wait(done: Any, what: str) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@linux
def test_a_killed_process_is_restarted_and_none_outlives_the_launcher(
    fatal: list[str], tmp_path, settings
) -> None:
    path, errors = tmp_path / "run", tmp_path / "errors.txt"
    words = ["train", "sinusoid", "--out", str(path), *settings, *EXACT, *fatal]
    words += ["--processes", "2", "--max-restarts", "1", "--set", "outer.num_iterations=1000000"]
    with (
        errors.open("w") as file,
        subprocess.Popen([sys.executable, "-m", "alfa", *words], stderr=file) as launcher,
    ):
        _wait(lambda: len(Run(path).metrics) > 2, "it does not get far")
        assert (tmp_path / "was-killed").exists()
        assert len(list(_workers(path, launcher.pid))) == 2
        launcher.kill()
    _wait(lambda: not list(_workers(path, launcher.pid)), "processes have outlived the launcher")
    # The thread that holds the lock may take a moment longer.
    _wait(lambda: not Run(path).files.is_busy, "the run folder stays locked")
    message = r"^alfa: process [01] was terminated by SIGKILL; restarting all processes .* 1 of 1"
    assert re.search(message, errors.read_text(), re.M)
    assert "Traceback" not in errors.read_text()
    with safe_open(Run(path).files.checkpoint("last"), "pt") as state:
        done = json.loads(state.metadata()["progress"])["iteration"]
    alone = _train_alone(tmp_path / "alone", *settings, num_iterations=done)
    _assert_same(path, alone, num_iterations=done)


def _listening(pid: int) -> set[str]:
    """Addresses on which a process listens, in hexadecimal."""
    opened = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            opened.add(os.readlink(file))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, number = line.split()[:10]
            if state == "0A" and f"socket:[{number}]" in opened:
                found.add(local.partition(":")[0])
    return found


@linux
def test_all_are_stopped_at_once_and_nothing_is_lost(tmp_path, settings) -> None:
    path = tmp_path / "run"
    words = ["train", "sinusoid", "--out", str(path), *settings, *EXACT]
    # The run saves nothing unless it is stopped.
    for key in ("outer.num_iterations", "outer.validate_every", "engine.checkpoint_every"):
        words += ["--set", f"{key}=1000000"]
    # An iteration is long enough for the launcher to forward its signal.
    words += ["--processes", "2", "--max-restarts", "2", "--set", "outer.num_tasks=100"]
    with subprocess.Popen(
        [sys.executable, "-m", "alfa", *words], stderr=subprocess.PIPE, text=True
    ) as parent:
        _wait(lambda: Run(path).files.exists, "it does not begin")
        time.sleep(0.5)
        workers = list(_workers(path, parent.pid))
        assert len(workers) == 2
        # The processes listen only on 127.0.0.1, so other machines cannot reach them.
        assert set().union(*map(_listening, [parent.pid, *workers])) == {"0100007F"}
        # A scheduler signals all processes, and the launcher forwards its signal to the others.
        for pid in (*workers, parent.pid):
            os.kill(pid, signal.SIGTERM)
        _, told = parent.communicate(timeout=60)
    assert parent.returncode == 143
    assert told.count("alfa: stopped; resume it with") == 1
    assert "Traceback" not in told
    kept = Run(path).load_last()
    assert kept is not None
    assert kept.progress["iteration"] > 0


@pytest.mark.parametrize(
    ("codes", "times", "code"),
    [
        ([75, -9], 3, 137),
        # SIGTERM ends the other processes, which may treat it as a request to stop.
        ([-9, 143], 3, 137),
        ([1, -15], 3, 1),
        ([2, 2], 1, 2),
        ([2, -15], 1, 2),
        ([130, 143], 1, 130),
    ],
    ids=str,
)
def test_only_what_may_get_better_is_started_anew(codes, times, code, monkeypatch, capsys) -> None:
    started = []

    def fail(words, environment, count, received) -> list[int]:
        started.append(environment["TORCHELASTIC_RUN_ID"])
        return codes

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(launch, "_run", fail)
    with pytest.raises(typer.Exit) as caught:
        launch.launch(["train"], count=2, max_restarts=2, hint="go on")
    assert caught.value.exit_code == code
    assert started == [started[0]] * times
    told = re.findall(r"^alfa: process \d .* \(restart (\d) of 2\)", capsys.readouterr().err, re.M)
    assert [int(number) for number in told] == list(range(1, times))


@pytest.mark.parametrize("restarts", ["0", "1"])
@pytest.mark.parametrize(("name", "known"), [("abc", "abc"), ("abc", "xyz"), ("none", None)])
def test_all_processes_of_a_launch_ask_the_same(
    name: str, known: str | None, restarts: str, tmp_path, monkeypatch
) -> None:
    """Collective calls must not depend on the local state of one process."""
    asked = []

    class Noted(Processes):
        def any(self, wish: bool) -> bool:
            asked.append("any")
            return wish

        def from_first(self, make: Any, **options: Any) -> Any:
            asked.append("from_first")
            return make()

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    run = Run.new(tmp_path, compose("sinusoid", method="maml"))
    assert not must_resume(tmp_path, Noted(), or_resume=False)
    run.create(Sinusoids().signature())
    run.files.write_launch(known)
    begun = must_resume(tmp_path, Noted(), or_resume=False)
    assert begun == (name == known or (known is None and restarts == "1"))
    assert must_resume(tmp_path, Noted(), or_resume=True)
    assert asked == ["any", "from_first"] * 3


@linux
def test_two_machines_give_the_same_numbers_also_if_one_fails(
    alone: Path, fatal: list[str], tmp_path, settings
) -> None:
    path = tmp_path / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"),
        *("--local-addr", "127.0.0.1", "--max-restarts", "1", "-m", "alfa"),
    ]
    words = ["train", "sinusoid", "--out", str(path), *settings, *EXACT, *fatal, "--json"]
    machines = [
        subprocess.Popen(
            [*launcher, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [machine.communicate(timeout=120) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], told
    assert (tmp_path / "was-killed").exists()
    # One process prints the result. If a machine notices the failure late, torchrun restarts both
    # after they are done, and the complete result is printed again.
    results = [result for out, _ in told for result in _documents(out)]
    assert [result["engine"]["processes"] for result in results] == [2] * len(results)
    assert results
    assert all(result["test"] == results[0]["test"] for result in results)
    _assert_same(path, alone)


def _documents(text: str) -> Iterator[Any]:
    """Parse consecutive JSON documents."""
    while text := text.strip():
        found, end = json.JSONDecoder().raw_decode(text)
        yield found
        text = text[end:]


def test_what_is_wrong_is_said_once_before_anything_starts(refused, alone, settings) -> None:
    told = refused("train", "sinusoid", "--out", alone, *settings, "--processes", "2")
    assert "is not empty" in told


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cards_that_are_not_there_are_said_once(
    refused, tmp_path, settings, device, monkeypatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    words = ["train", "sinusoid", "--out", tmp_path / "run", *settings, "--processes", "2"]
    assert "for 2 processes" in refused(*words, "--device", device).replace("there are 2", "for 2")


def test_all_machines_must_see_what_is_resumed(refused, tmp_path, monkeypatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    told = refused("train", "--resume", tmp_path / "elsewhere")
    assert "requires a run folder that all machines can read" in told


def test_processes_are_left_to_torchrun_where_it_has_started_them(
    refused, tmp_path, settings, monkeypatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    words = ["train", "sinusoid", "--out", tmp_path / "run", *settings, "--processes", "2"]
    assert "torchrun already starts the processes" in refused(*words)


def test_a_run_that_is_there_is_gone_on_with(alfa, tmp_path, settings) -> None:
    words = ["train", "sinusoid", "--out", tmp_path / "run", *settings, "--or-resume"]
    first, second = alfa(*words, "--json"), alfa(*words, "--json")
    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["test"] == json.loads(second.out)["test"]


def test_processes_that_may_go_on_still_know_what_was_asked_for(
    alfa, settings, tmp_path, monkeypatch
) -> None:
    words = ["train", "sinusoid", "--out", str(tmp_path / "run"), *settings]
    assert alfa(*words).code == 0
    asked: list[list[str]] = []

    def record(words: list[str], **options: Any) -> None:
        # The command removes the file with the experiment.
        file = Path(words[1]).rename(tmp_path / f"{len(asked)}.toml")
        asked.append([words[0], str(file), *words[2:]])

    monkeypatch.setattr(launch, "launch", record)
    longer = [*words, "--set", "outer.num_iterations=25", "--or-resume", "--processes", "2"]
    other = [*words, "--set", "inner.num_steps=2", "--or-resume", "--max-restarts", "1"]
    assert [alfa(*longer).code, alfa(*other).code] == [0, 0]
    # Each process does the same as a single process.
    assert alfa(*asked[0]).code == 0
    assert Run(tmp_path / "run").result["num_iterations"] == 25
    answer = alfa(*asked[1])
    assert answer.code == 2
    assert "belongs to another experiment" in answer.err
