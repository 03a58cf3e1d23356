"""Progress of long work: bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import abc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from alfa.runs import Run
    from alfa.training import Progress as TrainingProgress

# Seconds between two lines, which grow to this part of the time since the first one.
_PAUSE, _PART = 10.0, 0.05
# A rate is measured over the last 900 to 1,800 seconds, which include some validations.
_RATE_SECONDS = 900.0


@dataclass
class Work:
    """Some work and its rate; `Meter.update` explains the first attributes."""

    what: str
    done: int
    total: int | None
    unit: str
    note: str
    transient: bool
    # When it was first shown, and how much an earlier process had done; that is not in the rate.
    began: float
    first: int
    shown: float
    # When the measurement of the rate began, and how much was done then; and the next one.
    since: tuple[float, int]
    later: tuple[float, int]
    ended: bool = False

    @property
    def is_done(self) -> bool:
        return self.done == self.total

    @property
    def count(self) -> str:
        if self.unit == "bytes":
            of = "" if self.total is None else f" of {self.total / 1e6:,.1f}"
            return f"{self.done / 1e6:,.1f}{of} MB"
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.done:,}{of} {self.unit}"

    def pace(self, now: float) -> str:
        """The rate and the time left, as far as they are known."""
        since, first = self.since
        rate = (self.done - first) / (now - since) if now > since else 0.0
        parts = [_rate_text(rate, self.unit)] if rate else []
        if rate and self.total is not None and self.done < self.total:
            parts.append(f"{duration_text((self.total - self.done) / rate)} left")
        return ", ".join(parts)


class Meter(abc.ABC):
    """Shows work with its rate and the time left; every line begins with the meter's name."""

    def __init__(
        self, name: str, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self._console, self._clock = name, console, clock
        self._works: dict[str, Work] = {}

    def tell(self, message: str) -> None:
        """Print a message."""
        # A path or a class may look like markup.
        text = f"{self.name}: {message}"
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def update(
        self,
        what: str,
        done: int,
        total: int | None,
        *,
        unit: str,
        note: str = "",
        transient: bool = False,
    ) -> None:
        """Show the progress of some work.

        Args:
            what: the name of the work; if it starts again, its rate is measured anew.
            done: how much of it is done.
            total: how much there is, if known.
            unit: what is counted; ``"bytes"`` are shown as megabytes.
            note: news about it.
            transient: its bar disappears when it is done, and short work has no line.
        """
        now = self._clock()
        work = self._works.get(what)
        if work is None or done < work.done:
            start = (now, done)
            work = Work(what, done, total, unit, note, transient, *start, now, start, start)
            self._works[what] = work
        work.done, work.total, work.note = done, total, note
        if now - work.later[0] > _RATE_SECONDS:
            work.since, work.later = work.later, (now, done)
        self.show(work, now)

    @abc.abstractmethod
    def show(self, work: Work, now: float) -> None:
        """Show the progress of some work."""


@contextmanager
def meter(name: str, *, quiet: bool = False) -> Iterator[Meter]:
    """A meter on standard error; a quiet one shows nothing."""
    console = Console(stderr=True, quiet=quiet)
    # Colors can be forced on a file, and some terminals cannot move the cursor.
    is_terminal = sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal
    if quiet or not is_terminal:
        yield _Lines(name, console)
        return
    bars = _Bars(name, console)
    try:
        yield bars
    finally:
        bars.stop()


class _Bars(Meter):
    """One bar for every work, and news as lines above them."""

    def __init__(
        self, name: str, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name, console, clock)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", style="progress.download", markup=False),
            TextColumn("{task.fields[pace]}", style="progress.remaining", markup=False),
            console=console,
            # Standard output must not be redirected to standard error.
            redirect_stdout=False,
        )
        self._ids: dict[str, TaskID] = {}

    def show(self, work: Work, now: float) -> None:
        # Only now, so that a command that fails at once shows no bar.
        self._bars.start()
        if work.what not in self._ids:
            self._ids[work.what] = self._bars.add_task(work.what, count="", pace="")
        if work.note:
            named = "" if work.what == self.name else f"{work.what}, "
            self.tell(f"{named}{work.count}, {work.note}")
        self._bars.update(
            self._ids[work.what],
            completed=work.done,
            total=work.total,
            count=work.count,
            pace=work.pace(now),
        )
        if work.transient and work.is_done:
            self._bars.remove_task(self._ids.pop(work.what))

    def stop(self) -> None:
        self._bars.stop()


class _Lines(Meter):
    """A line from time to time, at the end, and for news."""

    def show(self, work: Work, now: float) -> None:
        is_due = now - work.shown > max(_PAUSE, _PART * (now - work.began))
        is_short = work.transient and work.shown == work.began
        ends = work.is_done and not work.ended and not is_short
        if not work.note and not ends and (work.done == work.first or not is_due):
            return
        work.shown, work.ended = now, work.is_done
        named = "" if work.what == self.name else work.what
        self.tell(", ".join(filter(None, [named, work.count, work.pace(now), work.note])))


def _rate_text(rate: float, unit: str) -> str:
    """With at least two digits."""
    rate, unit = (rate / 1e6, "MB") if unit == "bytes" else (rate, unit)
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"


def duration_text(seconds: float) -> str:
    """A duration in seconds, minutes, or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def note_of(record: dict[str, Any]) -> str:
    """The newest validation figure of a run."""
    loss, accuracy = record["val_loss"], record.get("val_accuracy")
    if loss is None:
        return "validation loss not finite"
    if accuracy is not None:
        return f"validation accuracy {100 * accuracy:.2f} %"
    return f"validation loss {loss:.3f}"


def tell_unfinished(shown: Meter, run: Run) -> None:
    """Print a note if the training of a run is not complete."""
    if run.result is None:
        shown.tell("its training is not complete; this is the model so far")


def show_testing(shown: Meter) -> Callable[[int, int], None]:
    """The `on_tasks` of an evaluation."""
    return lambda done, total: shown.update("testing", done, total, unit="tasks", transient=True)


def show_training(
    shown: Meter, name: str, *, transient: bool = False
) -> Callable[[TrainingProgress], None]:
    """The `on_progress` of a training; a transient one is one of many."""
    # With several runs in one meter, each names its validation.
    prefix = "" if name == shown.name else f"{name}, "

    def update(progress: TrainingProgress) -> None:
        if progress.message is not None:
            shown.tell(f"{prefix}{progress.message}")
        if progress.work is not None:
            what, done, total, unit = progress.work
            shown.update(f"{prefix}{what}", done, total, unit=unit, transient=True)
            return
        note = "" if progress.record is None else note_of(progress.record)
        done, total = progress.iteration, progress.num_iterations
        shown.update(name, done, total, unit="it", note=note, transient=transient)

    return update
