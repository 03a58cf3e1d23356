"""Runs several jobs at once, in processes of this machine or elsewhere."""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from alfa._runtime import leave_with_parent
from alfa.errors import Stopped
from alfa.paper._cell_status import is_done
from alfa.paper._job import Job
from alfa.paper._reproduce import JobResult, reproduce
from alfa.training import Progress

Before = Callable[[Job], None]
"""Called by a worker before each job; must be an importable function."""

# Seconds between two progress reports of a job, and to wait for a message.
_REPORT_EVERY, _POLL_SECONDS = 0.2, 0.2
# How often a job is restarted after its process died.
_MAX_RETRIES = 3
# Seconds for which the lock of a dead process may remain, and between two attempts.
_LOCK_SECONDS, _RETRY_SECONDS = 600.0, 10.0


class Message(NamedTuple):
    """A message about a job: its progress, its result, or None if its process died."""

    job: str
    content: Progress | JobResult | None


class Workers(abc.ABC):
    """Run jobs, several at once."""

    @abc.abstractmethod
    def has_room(self) -> bool:
        """Whether another job can be started now."""

    @abc.abstractmethod
    def start(self, job: Job) -> None:
        """Start a job."""

    @abc.abstractmethod
    def poll(self) -> list[Message]:
        """The new messages; waits a moment for one."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Let all running jobs save their progress, and end them."""


class _Queue:
    """The jobs that are not running."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting = deque(jobs)
        # Jobs that need a file which a running job is making.
        self._blocked: list[Job] = []
        # Jobs that wait for the lock of a dead process, and when to retry.
        self._later: list[tuple[float, Job]] = []
        self._deaths: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def next(self) -> Job | None:
        """The next job that can be started now."""
        now = time.monotonic()
        self._waiting.extend(job for when, job in self._later if when <= now)
        self._later = [(when, job) for when, job in self._later if when > now]
        return self._waiting.popleft() if self._waiting else None

    def finish(
        self, job: Job, result: JobResult | None, *, others_running: bool
    ) -> JobResult | None:
        """The final result of a job; None if it is started again.

        Args:
            job: the job.
            result: the result that its worker sent; None if the worker died.
            others_running: other jobs are running.
        """
        now, deaths = time.monotonic(), self._deaths.setdefault(job.name, [])
        if result is not None and result.busy:
            if deaths and now - deaths[-1] < _LOCK_SECONDS:
                # The lock of a dead machine may remain for a while.
                self._later.append((now + _RETRY_SECONDS, job))
                return None
            if others_running or self._waiting:
                self._blocked.append(job)
                return None
            if deaths:
                message = f"its process has died, and {job.path} is in use by another one."
                result = JobResult(failed={job.name: message})
        if result is None:
            deaths.append(now)
            if len(deaths) <= _MAX_RETRIES:
                self._waiting.append(job)
            else:
                result = JobResult(failed={job.name: f"its process has died {len(deaths)} times."})
        # The job may have made the file that others need.
        self._waiting.extend(self._blocked)
        self._blocked.clear()
        return result


def run_parallel(
    jobs: Sequence[Job],
    workers: Workers,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    before: Callable[[Job], None] = lambda job: None,
    after: Callable[[Job], None] = lambda job: None,
    on_progress: Callable[[Job, Progress], None] = lambda job, progress: None,
) -> JobResult:
    """Run the jobs that are not done yet, several at once; a failure does not stop the others.

    A job whose process dies is resumed from its last checkpoint.

    Args:
        jobs: the jobs, started in this order.
        workers: run the jobs.
        should_stop: called frequently.
        before: called before each job that is not done.
        after: called after each job.
        on_progress: called with the progress of a job.

    Raises:
        Stopped: `should_stop` returned True; progress is kept.
    """
    results, left = JobResult(), []
    running: dict[str, Job] = {}
    try:
        for job in jobs:
            if is_done(job):
                results.skipped.append(job.name)
                after(job)
            else:
                left.append(job)
        queue = _Queue(left)
        while queue or running:
            if should_stop():
                raise Stopped
            while workers.has_room() and (new := queue.next()) is not None:
                running[new.name] = new
                before(new)
                workers.start(new)
            if not running:
                time.sleep(_POLL_SECONDS)
                continue
            for name, content in workers.poll():
                if isinstance(content, Progress):
                    on_progress(running[name], content)
                    continue
                job = running.pop(name)
                result = queue.finish(job, content, others_running=bool(running))
                if result is not None:
                    results.add(result)
                    after(job)
    finally:
        workers.stop()
    return results


class LocalWorkers(Workers):
    """Processes of this machine, each of which runs one job after the other.

    Args:
        count: the number of processes.
        device: where they compute.
        before: called before each job.
    """

    def __init__(self, count: int, *, device: str, before: Before) -> None:
        self.count, self.device, self.before = count, device, before
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, BaseProcess] = {}
        self._busy: dict[Connection, str] = {}

    def has_room(self) -> bool:
        return len(self._busy) < self.count

    def start(self, job: Job) -> None:
        idle = [connection for connection in self._processes if connection not in self._busy]
        connection = idle[0] if idle else self._start_process()
        self._busy[connection] = job.name
        connection.send(job)

    def _start_process(self) -> Connection:
        connection, other = self._context.Pipe()
        arguments = (other, self.device, self.count, self.before, os.getpid())
        process = self._context.Process(target=_run_jobs, args=arguments)
        process.start()
        other.close()
        self._processes[connection] = process
        return connection

    def poll(self) -> list[Message]:
        messages: list[Message] = []
        for connection in wait(list(self._processes), _POLL_SECONDS):
            assert isinstance(connection, Connection)
            try:
                content: Progress | JobResult | None = connection.recv()
            except (EOFError, OSError):
                self._processes.pop(connection).join()
                content = None
            if connection not in self._busy:
                continue  # an idle process died
            name = self._busy[connection]
            if not isinstance(content, Progress):
                del self._busy[connection]
            messages.append(Message(name, content))
        return messages

    def stop(self) -> None:
        for connection, process in self._processes.items():
            if connection in self._busy:
                process.terminate()
            else:
                connection.close()
        try:
            for connection, process in self._processes.items():
                if connection in self._busy:
                    # The process sends progress until it has saved everything.
                    with contextlib.suppress(EOFError, OSError):
                        while True:
                            connection.recv()
                process.join()
        except KeyboardInterrupt:
            # Otherwise Python waits for them when it exits.
            for process in self._processes.values():
                process.kill()
            raise
        finally:
            self._processes.clear()
            self._busy.clear()


def _run_jobs(
    connection: Connection, device: str, num_sharing: int, before: Before, parent: int
) -> None:
    """Run the jobs that arrive, until the connection is closed."""
    leave_with_parent(parent)
    signals: list[int] = []
    # Ctrl-C reaches all processes of a terminal; the parent decides how to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))

    def send(progress: Progress) -> None:
        try:
            connection.send(progress)
        except OSError:
            # The parent is gone; the job has not failed.
            raise Stopped from None

    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            job = connection.recv()
            connection.send(run_job(job, device, num_sharing, before, lambda: bool(signals), send))


def run_job(
    job: Job,
    device: str,
    num_sharing: int,
    before: Before,
    should_stop: Callable[[], bool],
    send: Callable[[Progress], None],
) -> JobResult:
    """Run one job in a worker; `send` gets its progress a few times per second."""
    sent = 0.0

    def on_progress(job: Job, progress: Progress) -> None:
        nonlocal sent
        now = time.monotonic()
        if progress.record is None and progress.message is None and now - sent < _REPORT_EVERY:
            return
        sent = now
        send(progress)

    return reproduce(
        [job],
        device=device,
        num_sharing=num_sharing,
        before=before,
        should_stop=should_stop,
        on_progress=on_progress,
    )
