"""How far something has come: bars in a terminal, plain lines elsewhere."""

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
    from alfa.train import Progress as TrainingProgress
    from alfa.train import Run

# Seconds between two lines, and what part of the time since the first one they grow to.
_PAUSE, _PART = 10.0, 0.05
# A rate is that of the last so many seconds, up to twice as many: some validations belong to it,
# but not what the machine did hours ago.
_MEMORY = 900.0


@dataclass(frozen=True)
class Amount:
    """How far some work is; `Meter.update` explains it."""

    what: str
    done: int
    total: int | None
    unit: str
    note: str
    passing: bool


@dataclass
class Pace:
    """When a work began, and how far it was then and is now.

    Attributes:
        began: when it was first heard of.
        first: how much was done then, maybe by an earlier run, which is no part of the rate.
        done: how much is done.
        shown: when it was last shown.
        since: from when, and how much was done then, the rate is measured.
        later: from when it will be next.
        ended: its end was shown.
    """

    began: float
    first: int
    done: int
    shown: float
    since: tuple[float, int]
    later: tuple[float, int]
    ended: bool = False

    @classmethod
    def start(cls, now: float, done: int) -> Pace:
        """A work that is heard of for the first time."""
        return cls(now, done, done, now, since=(now, done), later=(now, done))

    def go_on(self, now: float, done: int) -> None:
        """Take note of how far it is."""
        self.done = done
        if now - self.later[0] > _MEMORY:
            self.since, self.later = self.later, (now, done)

    def text(self, now: float, work: Amount) -> str:
        """The rate and the time left, as far as they are known."""
        began, first = self.since
        rate = (self.done - first) / (now - began) if now > began else 0.0
        parts = [rate_text(rate, work.unit)] if rate else []
        if rate and work.total is not None and work.done < work.total:
            parts.append(f"{duration_text((work.total - work.done) / rate)} left")
        return ", ".join(parts)


class Meter(abc.ABC):
    """Shows work, each under a name, with its rate and the time left.

    Args:
        name: what all of the work belongs to, and lines begin with.
        clock: tells the time, in seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self._clock = name, clock
        self._paces: dict[str, Pace] = {}

    @abc.abstractmethod
    def tell(self, message: str) -> None:
        """Say a sentence."""

    def update(
        self,
        what: str,
        done: int,
        total: int | None,
        *,
        unit: str,
        note: str = "",
        passing: bool = False,
    ) -> None:
        """Show how far some work is.

        Args:
            what: the work; one that starts again is measured anew.
            done: how much of it is done.
            total: how much there is, where that is known.
            unit: what is counted; ``"bytes"`` are shown as megabytes.
            note: news about it.
            passing: when it is done its bar goes, and if it was short it has no line.
        """
        now = self._clock()
        pace = self._paces.get(what)
        if pace is None or done < pace.done:
            pace = self._paces[what] = Pace.start(now, done)
        pace.go_on(now, done)
        self.show(Amount(what, done, total, unit, note, passing), pace, now)

    @abc.abstractmethod
    def show(self, work: Amount, pace: Pace, now: float) -> None:
        """Show how far some work is."""


@contextmanager
def meter(name: str, *, quiet: bool = False) -> Iterator[Meter]:
    """A meter on standard error.

    Args:
        name: what all of the work belongs to, and lines begin with.
        quiet: show nothing.
    """
    console = Console(stderr=True)
    # Colours can be forced upon a file, and some terminals cannot move the cursor.
    if quiet:
        yield _Silent(name)
    elif sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal:
        bars = _Bars(name, console)
        try:
            yield bars
        finally:
            bars.stop()
    else:
        yield _Lines(name, console)


def count_text(done: int, total: int | None, unit: str) -> str:
    """How many of how many."""
    if unit == "bytes":
        of = "" if total is None else f" of {total / 1e6:,.1f}"
        return f"{done / 1e6:,.1f}{of} MB"
    of = "" if total is None else f" of {total:,}"
    return f"{done:,}{of} {unit}"


def rate_text(rate: float, unit: str) -> str:
    """With two digits at least."""
    rate, unit = (rate / 1e6, "MB") if unit == "bytes" else (rate, unit)
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"


def duration_text(seconds: float) -> str:
    """In the unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class _Silent(Meter):
    def tell(self, message: str) -> None:
        pass

    def show(self, work: Amount, pace: Pace, now: float) -> None:
        pass


class _Bars(Meter):
    """One bar for every work, and news as lines above them."""

    def __init__(
        self, name: str, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name, clock)
        self._console = console
        # What is printed meanwhile is not ours to send to standard error.
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", style="progress.download", markup=False),
            TextColumn("{task.fields[pace]}", style="progress.remaining", markup=False),
            console=console,
            redirect_stdout=False,
        )
        self._ids: dict[str, TaskID] = {}

    def tell(self, message: str) -> None:
        _print(self._console, f"{self.name}: {message}")

    def show(self, work: Amount, pace: Pace, now: float) -> None:
        # Not before there is something to show: what is refused at once has no bar.
        self._bars.start()
        if work.what not in self._ids:
            self._ids[work.what] = self._bars.add_task(work.what, count="", pace="")
        if work.note:
            named = "" if work.what == self.name else f"{work.what}, "
            self.tell(f"{named}{count_text(work.done, work.total, work.unit)}, {work.note}")
        self._bars.update(
            self._ids[work.what],
            completed=work.done,
            total=work.total,
            count=count_text(work.done, work.total, work.unit),
            pace=pace.text(now, work),
        )
        if work.passing and work.done == work.total:
            self._bars.remove_task(self._ids.pop(work.what))

    def stop(self) -> None:
        self._bars.stop()


class _Lines(Meter):
    """A line now and then, at the end, and whenever there is news."""

    def __init__(
        self, name: str, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name, clock)
        self._console = console

    def tell(self, message: str) -> None:
        _print(self._console, f"{self.name}: {message}")

    def show(self, work: Amount, pace: Pace, now: float) -> None:
        waited = now - pace.shown > max(_PAUSE, _PART * (now - pace.began))
        worth_it = not work.passing or pace.shown > pace.began
        ended = work.done == work.total and not pace.ended and worth_it
        if not work.note and not ended and (work.done == pace.first or not waited):
            return
        pace.shown, pace.ended = now, work.done == work.total
        named = "" if work.what == self.name else work.what
        count = count_text(work.done, work.total, work.unit)
        self.tell(", ".join(filter(None, [named, count, pace.text(now, work), work.note])))


def _print(console: Console, text: str) -> None:
    # A path or a class may look like markup.
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def note_of(record: dict[str, Any]) -> str:
    """What the newest metrics say of a run."""
    loss, accuracy = record["val_loss"], record.get("val_accuracy")
    if loss is None:
        return "validation loss not finite"
    if accuracy is not None:
        return f"validation accuracy {100 * accuracy:.2f} %"
    return f"validation loss {loss:.3f}"


def tell_unfinished(shown: Meter, run: Run) -> None:
    """Say so where a model is used before its training is complete."""
    if run.read_result() is None:
        shown.tell("its training is not complete; this is the model so far")


def show_testing(shown: Meter) -> Callable[[int, int], None]:
    """What `judge` is to tell its progress to."""
    return lambda done, total: shown.update("testing", done, total, unit="tasks", passing=True)


def show_training(
    shown: Meter, name: str, *, passing: bool = False
) -> Callable[[TrainingProgress], None]:
    """What `train` is to tell its progress to.

    Args:
        shown: shows it.
        name: of the run.
        passing: it is one of many, whose bars go when they are done.
    """
    # Where there are several runs, each says whose validation it is.
    whose = "" if name == shown.name else f"{name}, "

    def update(progress: TrainingProgress) -> None:
        if progress.message is not None:
            shown.tell(f"{whose}{progress.message}")
        if progress.work is not None:
            what, done, total, unit = progress.work
            shown.update(f"{whose}{what}", done, total, unit=unit, passing=True)
            return
        note = "" if progress.record is None else note_of(progress.record)
        shown.update(
            name,
            progress.iteration,
            progress.num_iterations,
            unit="it",
            note=note,
            passing=passing,
        )

    return update
