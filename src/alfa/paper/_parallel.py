"""Runs several jobs at once, in local processes or other workers."""

import abc
import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from alfa._runtime import leave_with_parent
from alfa.errors import Stopped
from alfa.paper._cell_status import is_done
from alfa.paper._job import Job
from alfa.paper._reproduce import JobResult, reproduce
from alfa.training import Progress

Before = Callable[[Job], None]
"""A function that workers call before each job; it must be importable."""

# Seconds between two progress reports of a job, and of waiting for a message.
_REPORT_EVERY, _POLL_SECONDS = 0.2, 0.2
# The number of restarts of a job whose process died.
_MAX_RETRIES = 3
# Seconds that the lock of a dead process may remain, and between two attempts to acquire it.
_LOCK_SECONDS, _RETRY_SECONDS = 600.0, 10.0


Message = tuple[str, Progress | JobResult | None]
"""The name of a job, and its progress, its result, or None if its process died."""


class Workers(abc.ABC):
    """Runs jobs, several at once."""

    @abc.abstractmethod
    def has_room(self) -> bool:
        """Return whether another job can start now."""

    @abc.abstractmethod
    def start(self, job: Job) -> None:
        """Start a job."""

    @abc.abstractmethod
    def poll(self) -> list[Message]:
        """Return new messages; wait briefly if there are none."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop all running jobs after they have saved their progress."""


class _Queue:
    """The jobs that are not running."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting = deque(jobs)
        # Jobs that need a file which a running job creates.
        self._blocked: list[Job] = []
        # Jobs that wait for the lock of a dead process, with the time of their next attempt.
        self._later: list[tuple[float, Job]] = []
        self._deaths: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def next(self) -> Job | None:
        """Remove and return a job that can start now."""
        now = time.monotonic()
        self._waiting.extend(job for when, job in self._later if when <= now)
        self._later = [(when, job) for when, job in self._later if when > now]
        return self._waiting.popleft() if self._waiting else None

    def finish(self, job: Job, result: JobResult | None, *, is_last: bool) -> JobResult | None:
        """Return the final result of a job, or None if it is queued again.

        A `result` of None means that the worker died. `is_last` means that no other job is running.
        """
        now, deaths = time.monotonic(), self._deaths.setdefault(job.name, [])
        if result is not None and result.busy:
            if deaths and now - deaths[-1] < _LOCK_SECONDS:
                self._later.append((now + _RETRY_SECONDS, job))
                return None
            if self._waiting or not is_last:
                self._blocked.append(job)
                return None
            if deaths:
                message = f"the process of the job died, and another process uses {job.path}."
                result = JobResult(failed={job.name: message})
        if result is None:
            deaths.append(now)
            if len(deaths) <= _MAX_RETRIES:
                self._waiting.append(job)
            else:
                message = f"the process of the job died {len(deaths)} times."
                result = JobResult(failed={job.name: message})
        # The job may have created the file that others need.
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
    """Run the jobs that are not done yet, several at once; see `reproduce`.

    Jobs start in the given order. A job whose process dies is resumed from its last checkpoint.
    """
    results, queue = JobResult(), _Queue(jobs)
    running: dict[str, Job] = {}
    try:
        while queue or running:
            if should_stop():
                raise Stopped
            while workers.has_room() and (new := queue.next()) is not None:
                if is_done(new):
                    results.skipped.append(new.name)
                    after(new)
                    continue
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
                result = queue.finish(job, content, is_last=not running)
                if result is not None:
                    results.add(result)
                    after(job)
    finally:
        workers.stop()
    return results


class LocalWorkers(Workers):
    """Processes on this machine; each runs one job at a time, after calling `before`."""

    def __init__(self, count: int, *, device: str, before: Before) -> None:
        self.count = count
        self._options = {"device": device, "num_sharing": count, "before": before}
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, BaseProcess] = {}
        self._busy: dict[Connection, str] = {}

    def has_room(self) -> bool:
        return len(self._busy) < self.count

    def start(self, job: Job) -> None:
        idle = [connection for connection in self._processes if connection not in self._busy]
        if idle:
            connection = idle[0]
        else:
            connection, other = self._context.Pipe()
            arguments = (other, os.getpid(), self._options)
            process = self._context.Process(target=_run_jobs, args=arguments)
            process.start()
            other.close()
            self._processes[connection] = process
        self._busy[connection] = job.name
        connection.send(job)

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
            messages.append((self._busy[connection], content))
            if not isinstance(content, Progress):
                del self._busy[connection]
        return messages

    def stop(self) -> None:
        for connection, process in self._processes.items():
            if connection in self._busy:
                process.terminate()
            else:
                connection.close()
        try:
            for connection, process in self._processes.items():
                # A busy process sends progress until it has saved everything.
                with contextlib.suppress(EOFError, OSError):
                    while connection in self._busy:
                        connection.recv()
                process.join()
        except KeyboardInterrupt:
            # Otherwise Python waits for the processes at exit.
            for process in self._processes.values():
                process.kill()
            raise
        finally:
            self._processes.clear()
            self._busy.clear()


def _run_jobs(connection: Connection, parent: int, options: Mapping[str, Any]) -> None:
    """Run the received jobs until the connection is closed."""
    leave_with_parent(parent)
    signals: list[int] = []
    # Ctrl-C reaches all processes of a terminal, but the parent decides how to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))

    def send(progress: Progress) -> None:
        try:
            connection.send(progress)
        except OSError:
            # The parent is gone, which is not a failure of the job.
            raise Stopped from None

    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            job = connection.recv()
            connection.send(run_job(job, send, should_stop=lambda: bool(signals), **options))


def run_job(job: Job, send: Callable[[Progress], None], **options: Any) -> JobResult:
    """Run a job with the options of `reproduce`, and send its progress a few times per second."""
    sent = 0.0

    def on_progress(job: Job, progress: Progress) -> None:
        nonlocal sent
        now = time.monotonic()
        if progress.record is None and progress.message is None and now - sent < _REPORT_EVERY:
            return
        sent = now
        send(progress)

    return reproduce([job], on_progress=on_progress, **options)
