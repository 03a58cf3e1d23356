"""Several jobs at once: begun in order, gone on with after a death, and the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from alfa.errors import ConfigError, Stopped
from alfa.ops import set_threads
from alfa.paper import TABLES, Job, LocalWorkers, Outcome, Workers, plan_jobs, reproduce, spread
from alfa.paper._spread import News
from alfa.train import Progress

SINES = TABLES["table8"].cells


def _jobs(path: Path, count: int) -> list[Job]:
    return plan_jobs(SINES[:count], path, quick=True)


class Scripted(Workers):
    """Workers that do as they are told.

    Args:
        room: how many jobs there is room for.
        script: what comes of each job, each time that it is started.
    """

    def __init__(self, room: int, script: dict[str, list[Any]]) -> None:
        self.room, self.script = room, script
        self.started: list[str] = []
        self.running: deque[str] = deque()
        self.stopped = False

    def has_room(self) -> bool:
        return len(self.running) < self.room

    def start(self, job: Job) -> None:
        self.started.append(job.name)
        self.running.append(job.name)

    def hear(self) -> list[News]:
        name = self.running.popleft()
        what = self.script[name].pop(0) if self.script.get(name) else Outcome(done=[name])
        if isinstance(what, Progress):
            self.running.append(name)
        return [News(name, what)]

    def stop(self) -> None:
        self.stopped = True


def test_jobs_are_begun_in_order_as_there_is_room(tmp_path) -> None:
    jobs = _jobs(tmp_path, 4)
    workers, told = Scripted(2, {jobs[0].name: [Progress(1, 2), Progress(2, 2)]}), []
    outcome = spread(jobs, workers, on_progress=lambda job, progress: told.append(job.name))
    assert workers.started == [job.name for job in jobs]
    assert set(outcome.done) == {job.name for job in jobs}
    assert told == [jobs[0].name] * 2
    assert workers.stopped


def test_a_job_whose_process_dies_is_begun_again(tmp_path) -> None:
    first, second = _jobs(tmp_path, 2)
    workers = Scripted(1, {first.name: [None, None]})
    outcome = spread([first, second], workers)
    assert workers.started == [first.name, second.name, first.name, first.name]
    assert outcome.failed == {}
    assert set(outcome.done) == {first.name, second.name}


def test_a_job_that_always_dies_is_given_up(tmp_path) -> None:
    first, second = _jobs(tmp_path, 2)
    outcome = spread([first, second], Scripted(2, {first.name: [None] * 9}))
    assert outcome.failed == {first.name: "its process has died 4 times."}
    assert outcome.done == [second.name]


def test_a_job_that_needs_what_another_makes_waits_for_it(tmp_path) -> None:
    first, second, third = _jobs(tmp_path, 3)
    busy = {second.name: [Outcome(busy=[second.name])], third.name: [Progress(0, 1)] * 3}
    workers = Scripted(3, {first.name: [Progress(0, 1)] * 2, **busy})
    outcome = spread([first, second, third], workers)
    assert set(outcome.done) == {first.name, second.name, third.name}
    assert outcome.busy == []


def test_a_job_that_somebody_else_runs_is_left_to_them(tmp_path) -> None:
    (job,) = _jobs(tmp_path, 1)
    outcome = spread([job], Scripted(1, {job.name: [Outcome(busy=[job.name])]}))
    assert outcome.busy == [job.name]


def test_who_wants_to_stop_stops_the_workers(tmp_path) -> None:
    workers = Scripted(1, {})
    with pytest.raises(Stopped):
        spread(_jobs(tmp_path, 3), workers, should_stop=lambda: len(workers.started) == 2)
    assert workers.stopped
    assert len(workers.started) == 2


def _one_thread(job: Job) -> None:
    set_threads(1)


def _results(jobs: list[Job]) -> list[dict[str, Any]]:
    found = [json.loads((job.path / "result.json").read_text()) for job in jobs]
    return [{key: result[key] for key in ("test", "val_loss")} for result in found]


def test_two_at_once_find_what_one_after_the_other_finds(tmp_path) -> None:
    one, two = _jobs(tmp_path / "one", 3), _jobs(tmp_path / "two", 3)
    reproduce(one, before=_one_thread)
    workers = LocalWorkers(2, device="cpu", before=_one_thread)
    told: list[Progress] = []
    outcome = spread(two, workers, on_progress=lambda job, progress: told.append(progress))
    assert set(outcome.done) == {job.name for job in two}
    assert _results(one) == _results(two)
    assert any(progress.record for progress in told)
    assert spread(two, workers).skipped == [job.name for job in two]


def _die_once(path: str, job: Job) -> None:
    set_threads(1)
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_replaced(tmp_path) -> None:
    jobs = _jobs(tmp_path, 1)
    before: Callable[[Job], None] = partial(_die_once, str(tmp_path / "died"))
    outcome = spread(jobs, LocalWorkers(1, device="cpu", before=before))
    assert (tmp_path / "died").exists()
    assert outcome.done == [jobs[0].name]


def test_jobs_that_are_stopped_go_on(tmp_path) -> None:
    command = [sys.executable, "-m", "alfa", "reproduce", "table8", "--shots", "5"]
    command += ["--iterations", "20000", "--jobs", "2", "--out", str(tmp_path), "--json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 90
        while len(list(tmp_path.rglob("config.toml"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "alfa: stopped; the same command goes on from here." in told
    assert "Traceback" not in told
    assert len(list(tmp_path.rglob("last.safetensors"))) == 2


def test_ray_that_is_not_installed_is_named(tmp_path, monkeypatch) -> None:
    from alfa.paper._ray import RayWorkers

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'alfa\[cluster\]'"):
        RayWorkers(device="cpu", threads=1, before=_one_thread, out=tmp_path)
