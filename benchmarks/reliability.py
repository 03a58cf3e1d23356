"""Runs that are killed at random moments and resumed.

    python benchmarks/reliability.py kills    kills runs 240 times; can be interrupted and resumed
    python benchmarks/reliability.py report   writes docs/results/reliability.md

Each run is short and saves a checkpoint after every iteration, so it spends much of its time
writing. The script resumes it until it is complete. Then its metrics, test results, weights, and
optimizer state must equal those from an uninterrupted run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w
from _common import choose, table, write_part

import alfa.cli.train  # noqa: F401 - forked processes inherit it
from alfa._io import write_atomic
from alfa.cli.main import main
from alfa.config import parse_experiment, to_dict
from alfa.runs import Checkpoint, Run

FOLDER = Path("runs/reliability")
RESULTS = Path("docs/results/reliability.json")
PAGE = Path("docs/results/reliability.md")
# The number of kills of each kind.
WANTED = {
    "one process, at any moment": 100,
    "one process, while it writes": 80,
    "one of two processes": 30,
    "the parent of two processes": 30,
}
SMALL = {
    "tasks": {"name": "sinusoid", "num_support": 5, "num_query": 5},
    "model": {"name": "mlp", "hidden": [20]},
    "rule": {"name": "alfa"},
    "outer": {"num_iterations": 60, "num_tasks": 4, "validate_every": 10, "num_val_tasks": 5},
    "test": {"num_tasks": 5, "ensemble": 3},
    "engine": {"checkpoint_every": 1},
}


def kills() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    config = FOLDER / "experiment.toml"
    write_atomic(config, tomli_w.dumps(to_dict(parse_experiment(SMALL))).encode())
    for count in (1, 2):
        if not (FOLDER / f"uninterrupted-{count}" / "result.json").is_file():
            shutil.rmtree(FOLDER / f"uninterrupted-{count}", ignore_errors=True)
            subprocess.run(_launched(config, FOLDER / f"uninterrupted-{count}", count), check=True)
    kinds: dict[str, Callable[[Path, Path, random.Random], int]] = {
        "one process, at any moment": kill_at_random,
        "one process, while it writes": kill_while_writing,
        "one of two processes": kill_a_worker,
        "the parent of two processes": kill_the_parent,
    }
    for kind, wanted in WANTED.items():
        count = 1 if kind.startswith("one process") else 2
        while (done := known().get(kind, {"kills": 0, "runs": 0}))["kills"] < wanted:
            rng = random.Random(f"{kind} {done['runs']}")
            path = FOLDER / "killed"
            shutil.rmtree(path, ignore_errors=True)
            began = time.perf_counter()
            number = kinds[kind](config, path, rng)
            compare(path, FOLDER / f"uninterrupted-{count}")
            assert not list(_processes(str(path))), "a process is still running"
            new = {"kills": done["kills"] + number, "runs": done["runs"] + 1}
            content = {**known(), kind: new}
            write_atomic(RESULTS, (json.dumps(content, indent=1) + "\n").encode())
            took = time.perf_counter() - began
            print(f"{kind}: {new['kills']} of {wanted} kills, {took:.1f} s", flush=True)


def known() -> dict[str, dict[str, int]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def compare(path: Path, uninterrupted: Path) -> None:
    """Check that two runs are equal except for times, and that every file is valid."""
    own, other = Run(path), Run(uninterrupted)
    assert own.metrics == other.metrics, "the metrics differ"
    results = [run.result or {} for run in (own, other)]
    for key in ("test", "ensemble", "best_iteration", "val_loss", "num_iterations"):
        assert results[0][key] == results[1][key], f"{key} differs"
    files = [sorted(p.name for p in (r.path / "checkpoints").iterdir()) for r in (own, other)]
    assert files[0] == files[1], f"the files are {files[0]}, expected {files[1]}"
    fingerprint = own.fingerprint
    for name in files[0]:
        states = [
            Checkpoint.load(run.path / "checkpoints" / name, fingerprint=fingerprint).tensors
            for run in (own, other)
        ]
        assert states[0].keys() == states[1].keys()
        assert all(states[0][key].equal(states[1][key]) for key in states[0]), f"{name} differs"
    left = {p.name for p in own.path.iterdir()} - {p.name for p in other.path.iterdir()}
    assert not left, f"the run left {left}"


def kill_at_random(config: Path, path: Path, rng: random.Random) -> int:
    """Kill a run at random moments until it is complete; return the number of kills."""
    longest, killed = 1.5, 0
    while True:
        pid = _forked(config, path)
        time.sleep(rng.uniform(0, longest))
        # The limit grows, so that the run completes.
        longest *= 1.15
        if not _ended(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed += 1
        elif (path / "result.json").is_file():
            return killed


def kill_while_writing(config: Path, path: Path, rng: random.Random) -> int:
    """Kill a run during a write until it is complete; return the number of kills."""
    killed = 0
    while True:
        pid = _forked(config, path)
        # The kill follows the creation of a random temporary file, a later one each time.
        wanted = rng.randint(1, 15 + 5 * killed)
        seen: set[str] = set()
        while not (ended := _ended(pid)):
            seen |= {f.name for f in path.glob("**/.*.*.*")} if path.is_dir() else set()
            if len(seen) >= wanted:
                break
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed += 1
        elif (path / "result.json").is_file():
            return killed


def kill_a_worker(config: Path, path: Path, rng: random.Random) -> int:
    """Kill one of two processes, which their parent restarts; return the number of kills."""
    killed = 0
    with _started(config, path, "--max-restarts", "100") as parent:
        while parent.poll() is None:
            time.sleep(rng.uniform(4, 9))
            workers = [pid for pid in _processes(str(path)) if pid != parent.pid]
            if killed < 5 and workers and parent.poll() is None:
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
    assert parent.returncode == 0, f"the parent ended with exit code {parent.returncode}"
    return killed


def kill_the_parent(config: Path, path: Path, rng: random.Random) -> int:
    """Kill the parent of two processes, which must then end; return the number of kills."""
    killed = 0
    while True:
        with _started(config, path) as parent:
            wait = rng.uniform(2, 9) if killed < 5 else 60
            deadline = time.monotonic() + wait
            while parent.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if parent.poll() is None:
                parent.kill()
                killed += 1
        deadline = time.monotonic() + 5
        while list(_processes(str(path))) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not list(_processes(str(path))), "processes outlived their parent"
        if (path / "result.json").is_file():
            return killed


def _forked(config: Path, path: Path) -> int:
    """Fork a process that trains, which is faster than importing everything again."""
    pid = os.fork()
    if pid:
        return pid
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        main(["train", str(config), "--out", str(path), "--or-resume", "--threads", "1"])
    finally:
        os._exit(0)


def _ended(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _launched(config: Path, path: Path, count: int, *words: str) -> list[str]:
    return [
        *(sys.executable, "-m", "alfa", "train", str(config), "--out", str(path), "--or-resume"),
        *("--threads", "1", "--processes", str(count), "--json", *words),
    ]


def _started(config: Path, path: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _launched(config, path, 2, *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _processes(word: str) -> Iterator[int]:
    """Yield the running processes with a word on their command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            is_dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if word.encode() in words and not is_dead and int(folder.name) != os.getpid():
            yield int(folder.name)


def report() -> None:
    rows = [[kind, str(found["kills"]), str(found["runs"])] for kind, found in known().items()]
    total = [sum(found[key] for found in known().values()) for key in ("kills", "runs")]
    rows.append(["**total**", *(f"**{number}**" for number in total)])
    lines: list[Any] = [
        *table(["killed", "kills", "runs, all equal to an uninterrupted run"], rows)
    ]
    write_part(PAGE, "reliability.py", lines)


if __name__ == "__main__":
    choose(__doc__, kills, report)
