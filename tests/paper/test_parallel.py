"""Several jobs at once: order, restarts, and equal results."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from alfa._runtime import set_threads
from alfa.errors import AlfaWarning, ConfigError, Stopped
from alfa.paper import (
    TABLES,
    Job,
    JobResult,
    LocalWorkers,
    Workers,
    plan_jobs,
    reproduce,
    run_parallel,
)
from alfa.paper import _parallel as parallel
from alfa.paper._parallel import Message
from alfa.paper._ray import RayWorkers
from alfa.runs import Run
from alfa.training import Progress

SINES = TABLES["table8"].cells


@pytest.fixture(autouse=True)
def _importable(monkeypatch) -> None:
    """Let workers import the functions of this file from any working directory."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2]), *sys.path])


def _jobs(path: Path, count: int) -> list[Job]:
    return plan_jobs(SINES[:count], path, quick=True)


class Scripted(Workers):
    """Workers with room for some jobs, and a script of messages for each start of a job."""

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

    def poll(self) -> list[Message]:
        name = self.running.popleft()
        what = self.script[name].pop(0) if self.script.get(name) else JobResult(done=[name])
        if isinstance(what, Progress):
            self.running.append(name)
        return [(name, what)]

    def stop(self) -> None:
        self.stopped = True


def test_jobs_start_in_order_when_workers_have_room(tmp_path) -> None:
    jobs = _jobs(tmp_path, 4)
    workers, told = Scripted(2, {jobs[0].name: [Progress(1, 2), Progress(2, 2)]}), []
    ended: list[str] = []
    outcome = run_parallel(
        jobs,
        workers,
        after=lambda job: ended.append(job.name),
        on_progress=lambda job, progress: told.append(job.name),
    )
    assert workers.started == [job.name for job in jobs]
    assert ended == outcome.done
    assert set(outcome.done) == {job.name for job in jobs}
    assert told == [jobs[0].name] * 2
    assert workers.stopped


def test_a_job_whose_process_dies_is_restarted(tmp_path) -> None:
    first, second = _jobs(tmp_path, 2)
    workers = Scripted(1, {first.name: [None, None]})
    outcome = run_parallel([first, second], workers)
    assert workers.started == [first.name, second.name, first.name, first.name]
    assert outcome.failed == {}
    assert set(outcome.done) == {first.name, second.name}


def test_a_job_that_always_dies_fails(tmp_path) -> None:
    first, second = _jobs(tmp_path, 2)
    outcome = run_parallel([first, second], Scripted(2, {first.name: [None] * 9}))
    assert outcome.failed == {first.name: "the process of the job died 4 times."}
    assert outcome.done == [second.name]


def test_a_job_waits_for_a_file_that_another_creates(tmp_path) -> None:
    first, second, third = _jobs(tmp_path, 3)
    busy = {second.name: [JobResult(busy=[second.name])], third.name: [Progress(0, 1)] * 3}
    workers = Scripted(3, {first.name: [Progress(0, 1)] * 2, **busy})
    outcome = run_parallel([first, second, third], workers)
    assert set(outcome.done) == {first.name, second.name, third.name}
    assert outcome.busy == []


@pytest.mark.parametrize("lingers", [600.0, 0.0])
def test_a_job_waits_for_the_lock_of_a_dead_process(tmp_path, monkeypatch, lingers) -> None:
    monkeypatch.setattr(parallel, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(parallel, "_LOCK_SECONDS", lingers)
    (job,) = _jobs(tmp_path, 1)
    busy = JobResult(busy=[job.name])
    outcome = run_parallel([job], Scripted(1, {job.name: [None, busy, busy]}))
    assert outcome.busy == []
    if lingers:
        assert outcome.done == [job.name]
    else:
        # The job is not done, so it is not reported as busy in another process.
        assert "the process of the job died, and another" in outcome.failed[job.name]


def test_a_job_in_another_process_is_busy(tmp_path) -> None:
    (job,) = _jobs(tmp_path, 1)
    outcome = run_parallel([job], Scripted(1, {job.name: [JobResult(busy=[job.name])]}))
    assert outcome.busy == [job.name]


def test_a_stop_request_stops_the_workers(tmp_path) -> None:
    workers = Scripted(1, {})
    with pytest.raises(Stopped):
        run_parallel(_jobs(tmp_path, 3), workers, should_stop=lambda: len(workers.started) == 2)
    assert workers.stopped
    assert len(workers.started) == 2


def _one_thread(job: Job) -> None:
    set_threads(1)


def _results(jobs: list[Job]) -> list[dict[str, Any]]:
    found = [json.loads((job.path / "result.json").read_text()) for job in jobs]
    return [{key: result[key] for key in ("test", "val_loss")} for result in found]


def _budget(job: Job) -> int:
    kept = Run(job.path).load_last()
    assert kept is not None
    return int(kept.progress["memory"]["budget"])


def _die_once(path: str, job: Job) -> None:
    """Kill the first worker that starts a job."""
    set_threads(1)
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_parallel_and_sequential_jobs_have_equal_results_even_if_a_worker_dies(tmp_path) -> None:
    one, two = _jobs(tmp_path / "one", 3), _jobs(tmp_path / "two", 3)
    reproduce(one, before=_one_thread)
    before: Callable[[Job], None] = partial(_die_once, str(tmp_path / "died"))
    workers = LocalWorkers(2, device="cpu", before=before)
    told: list[Progress] = []
    outcome = run_parallel(two, workers, on_progress=lambda job, progress: told.append(progress))
    assert (tmp_path / "died").exists()
    assert set(outcome.done) == {job.name for job in two}
    assert _results(one) == _results(two)
    # The jobs share the memory.
    budgets = [_budget(jobs[0]) for jobs in (one, two)]
    assert budgets[1] < 0.75 * budgets[0]
    assert any(progress.record for progress in told)
    assert run_parallel(two, workers).skipped == [job.name for job in two]


def test_a_second_interrupt_kills_the_workers(tmp_path) -> None:
    workers = LocalWorkers(1, device="cpu", before=_one_thread)
    connection, process = Mock(), Mock()
    # The second Ctrl-C arrives while the parent waits for the worker.
    connection.recv.side_effect = KeyboardInterrupt
    workers._processes, workers._busy = {connection: process}, {connection: "job"}
    with pytest.raises(KeyboardInterrupt):
        workers.stop()
    process.terminate.assert_called_once()
    process.kill.assert_called_once()


def test_the_loss_of_the_parent_is_not_a_failure(tmp_path, monkeypatch) -> None:
    (job,) = _jobs(tmp_path, 1)
    own, other = multiprocessing.Pipe()
    own.send(job)
    own.close()
    monkeypatch.setattr(parallel, "leave_with_parent", lambda parent: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    options = {"device": "cpu", "num_sharing": 1, "before": _one_thread}
    parallel._run_jobs(other, os.getpid(), options)
    assert Run(job.path).files.exists
    assert not job.error_file().exists()


class FakeRay:
    """A replacement of Ray in this process, with the functions that alfa uses.

    Args:
        nodes: CPU cores and GPUs of each machine.
        error: the error of every job.
        cluster: the address of the running cluster, if any.

    Attributes:
        connected: the addresses of all connections.
    """

    class exceptions:  # noqa: N801 - Ray's name
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            def __init__(self, cause: Exception) -> None:
                self.cause = cause

    def __init__(
        self,
        nodes: Sequence[tuple[int, int]] = ((8, 0),),
        error: Exception | None = None,
        cluster: str | None = "auto",
    ) -> None:
        self._nodes, self._error, self._cluster = nodes, error or ValueError(), cluster
        self.connected: list[str] = []
        self.util: Any = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *a, **k: 0)
        )

    def init(self, *, address: str, **options: Any) -> None:
        if address not in (self._cluster, "local"):
            raise ConnectionError(f"no cluster at {address}")
        self.connected.append(address)

    def shutdown(self) -> None: ...

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": c, "GPU": g}} for c, g in self._nodes]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, what: Any) -> Any:
        mailbox = SimpleNamespace(
            take=SimpleNamespace(remote=list), request_stop=SimpleNamespace(remote=lambda: 0)
        )
        started = SimpleNamespace(
            remote=lambda *words: mailbox if isinstance(what, type) else "job"
        )
        return SimpleNamespace(options=lambda **options: started)

    def wait(self, made: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        return made, []

    def get(self, made: Any) -> Any:
        if made == "job":
            raise self.exceptions.RayTaskError(self._error)
        return made


@pytest.fixture
def ray_workers(monkeypatch, tmp_path) -> Callable[..., RayWorkers]:
    """Return a function that creates workers on the replacement of Ray."""

    def make(ray: FakeRay | None, **options: Any) -> RayWorkers:
        monkeypatch.setitem(sys.modules, "ray", ray)
        options = {"device": "cpu", "threads": 1, **options}
        return RayWorkers(before=_one_thread, out=tmp_path, **options)

    return make


def test_a_package_missing_on_a_machine_is_an_error(tmp_path, ray_workers) -> None:
    (job,) = _jobs(tmp_path, 1)
    fake = FakeRay([(8, 0), (2, 0)], ImportError("no module\nnamed alfa"))
    workers = ray_workers(fake, threads=2)
    assert fake.connected == ["auto"]
    assert workers._options["num_sharing"] == 4
    outcome = run_parallel([job], workers)
    assert outcome.failed[job.name].startswith("ImportError('no module\\nnamed alfa'), on a")


def test_without_a_cluster_one_is_started_on_this_machine(ray_workers) -> None:
    fake = FakeRay(cluster=None)
    with pytest.warns(AlfaWarning, match=r"^no Ray cluster is running; starting one on this mac"):
        ray_workers(fake).stop()
    assert fake.connected == ["local"]


def test_a_given_cluster_is_used_or_an_error(ray_workers) -> None:
    fake = FakeRay(cluster="ray://head:10001")
    ray_workers(fake, address="ray://head:10001").stop()
    assert fake.connected == ["ray://head:10001"]
    with pytest.raises(ConfigError, match="found no cluster at ray://other:1, the address in RAY"):
        ray_workers(fake, address="ray://other:1")
    assert fake.connected == ["ray://head:10001"]


@pytest.mark.parametrize(("device", "threads"), [("cpu", 16), ("cuda", 1)])
def test_jobs_that_no_machine_fits_are_a_warning(device, threads, ray_workers) -> None:
    with pytest.warns(AlfaWarning, match="no machine of the cluster has"):
        ray_workers(FakeRay(), device=device, threads=threads).stop()


def test_messages_of_ray_go_to_the_standard_error(ray_workers, capsys) -> None:
    workers = ray_workers(FakeRay())
    print("(raylet) Raylet is terminated.")
    workers.stop()
    print("our figures")
    told = capsys.readouterr()
    assert told.out == "our figures\n"
    assert told.err == "(raylet) Raylet is terminated.\n"


def test_missing_ray_is_an_error_with_a_fix(ray_workers) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'alfa\[cluster\]'"):
        ray_workers(None)
