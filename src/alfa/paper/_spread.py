"""Several jobs at once: on processes of this machine, or wherever else workers are."""

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

from alfa.errors import Stopped
from alfa.paper._job import Job
from alfa.paper._reproduce import Outcome, reproduce
from alfa.paper._state import State, look
from alfa.parent import leave_with_parent
from alfa.train import Progress

Before = Callable[[Job], None]
"""What a worker does before a job; it must be a function that can be imported."""

# Seconds between two reports of a job, and for which news are waited for.
_PAUSE, _PATIENCE = 0.2, 0.2
# How often a job is begun again whose process has died.
_MAX_RETRIES = 3
# Seconds for which the lock of a process that has died may be there, and between two tries.
_LINGERS, _AGAIN = 600.0, 10.0


class News(NamedTuple):
    """Of a job: how far it is, what became of it, or that its process is gone."""

    name: str
    what: Progress | Outcome | None


class Workers(abc.ABC):
    """Those that run jobs, several at once."""

    @abc.abstractmethod
    def has_room(self) -> bool:
        """Whether another job can be started now."""

    @abc.abstractmethod
    def start(self, job: Job) -> None:
        """Start a job."""

    @abc.abstractmethod
    def hear(self) -> list[News]:
        """What is new; waits a moment for it."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Let all of them keep what they have done, and leave."""


class _Queue:
    """Jobs that are to be begun.

    Args:
        jobs: in this order.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting = deque(jobs)
        # What needs something that another job is making, until that one has ended.
        self._held: list[Job] = []
        # What waits for the lock of a process that has died, and when to try again.
        self._later: list[tuple[float, Job]] = []
        self._deaths: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def take(self) -> Job | None:
        """The next that can be begun now."""
        now = time.monotonic()
        self._waiting.extend(job for when, job in self._later if when <= now)
        self._later = [(when, job) for when, job in self._later if when > now]
        return self._waiting.popleft() if self._waiting else None

    def heard(self, job: Job, what: Outcome | None, *, others: bool) -> Outcome | None:
        """What became of a job in the end; None if it is begun again.

        Args:
            job: the job.
            what: its worker says; None if that has died.
            others: other jobs are running.
        """
        now, deaths = time.monotonic(), self._deaths.setdefault(job.name, [])
        if what is not None and what.busy:
            if deaths and now - deaths[-1] < _LINGERS:
                # The lock of a machine that is gone may outlast it.
                self._later.append((now + _AGAIN, job))
                return None
            if others or self._waiting:
                self._held.append(job)
                return None
            if deaths:
                sentence = f"its process has died, and {job.path} is in use by another one."
                what = Outcome(failed={job.name: sentence})
        if what is None:
            deaths.append(now)
            if len(deaths) <= _MAX_RETRIES:
                self._waiting.append(job)
            else:
                what = Outcome(failed={job.name: f"its process has died {len(deaths)} times."})
        # It may have made what others need.
        self._waiting.extend(self._held)
        self._held.clear()
        return what


def spread(
    jobs: Sequence[Job],
    workers: Workers,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    before: Callable[[Job], None] = lambda job: None,
    after: Callable[[Job], None] = lambda job: None,
    on_progress: Callable[[Job, Progress], None] = lambda job, progress: None,
) -> Outcome:
    """Run what is not done yet, several at once, and go on past what fails.

    A job whose process dies goes on from its last checkpoint.

    Args:
        jobs: what to run, begun in this order.
        workers: that run them.
        should_stop: asked every now and then.
        before: called before each job that has something to do.
        after: called after each job, whatever became of it.
        on_progress: is told how far a job is.

    Raises:
        Stopped: `should_stop` said so; what was done is kept.
    """
    outcome, left = Outcome(), []
    running: dict[str, Job] = {}
    try:
        for job in jobs:
            if all(look(job, cell)[0] == State.DONE for cell in job.cells):
                outcome.skipped.append(job.name)
                after(job)
            else:
                left.append(job)
        queue = _Queue(left)
        while queue or running:
            if should_stop():
                raise Stopped
            while workers.has_room() and (new := queue.take()) is not None:
                running[new.name] = new
                before(new)
                workers.start(new)
            if not running:
                time.sleep(_PATIENCE)
                continue
            for name, what in workers.hear():
                if isinstance(what, Progress):
                    on_progress(running[name], what)
                    continue
                job = running.pop(name)
                over = queue.heard(job, what, others=bool(running))
                if over is not None:
                    outcome.add(over)
                    after(job)
    finally:
        workers.stop()
    return outcome


class LocalWorkers(Workers):
    """Processes of this machine, each of which runs one job after the other.

    Args:
        count: how many.
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
        free = [own for own in self._processes if own not in self._busy]
        own = free[0] if free else self._new()
        self._busy[own] = job.name
        own.send(job)

    def _new(self) -> Connection:
        own, other = self._context.Pipe()
        arguments = (other, self.device, self.count, self.before, os.getpid())
        process = self._context.Process(target=_serve, args=arguments)
        process.start()
        other.close()
        self._processes[own] = process
        return own

    def hear(self) -> list[News]:
        news: list[News] = []
        for own in wait(list(self._processes), _PATIENCE):
            assert isinstance(own, Connection)
            try:
                what: Progress | Outcome | None = own.recv()
            except (EOFError, OSError):
                self._processes.pop(own).join()
                what = None
            if own not in self._busy:
                continue  # it has left with nothing to do
            name = self._busy[own] if isinstance(what, Progress) else self._busy.pop(own)
            news.append(News(name, what))
        return news

    def stop(self) -> None:
        for own, process in self._processes.items():
            if own in self._busy:
                process.terminate()
            else:
                own.close()
        try:
            for own, process in self._processes.items():
                if own in self._busy:
                    # It goes on telling how far it is, until it has kept everything.
                    with contextlib.suppress(EOFError, OSError):
                        while True:
                            own.recv()
                process.join()
        except KeyboardInterrupt:
            # Python itself would wait for them at its end.
            for process in self._processes.values():
                process.kill()
            raise
        finally:
            self._processes.clear()
            self._busy.clear()


def _serve(own: Connection, device: str, num_sharing: int, before: Before, parent: int) -> None:
    """Run the jobs that are sent, until there are no more."""
    leave_with_parent(parent)
    asked: list[int] = []
    # A terminal sends this one to all processes; the first one tells the others what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))

    def tell(progress: Progress) -> None:
        try:
            own.send(progress)
        except OSError:
            # Nothing is wrong with the job if nobody is there to be told.
            raise Stopped from None

    try:
        while True:
            job = own.recv()
            own.send(run_job(job, device, num_sharing, before, lambda: bool(asked), tell))
    except (EOFError, OSError, Stopped):
        # Whoever sends them is done, or gone.
        return


def run_job(
    job: Job,
    device: str,
    num_sharing: int,
    before: Before,
    should_stop: Callable[[], bool],
    tell: Callable[[Progress], None],
) -> Outcome:
    """Run one job as a worker.

    Args:
        job: the job.
        device: where to compute.
        num_sharing: jobs that share the memory of this machine.
        before: called first.
        should_stop: asked every now and then.
        tell: is told, not too often, how far it is.
    """
    told = 0.0

    def on_progress(job: Job, progress: Progress) -> None:
        nonlocal told
        now = time.monotonic()
        if progress.record is None and progress.message is None and now - told < _PAUSE:
            return
        told = now
        tell(progress)

    return reproduce(
        [job],
        device=device,
        num_sharing=num_sharing,
        before=before,
        should_stop=should_stop,
        on_progress=on_progress,
    )
