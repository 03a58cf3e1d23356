"""How far something has come: bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from alfa.train import Progress as TrainingProgress

# Seconds between two lines, and what part of the time since the first one they grow to.
_PAUSE, _PART = 10.0, 0.05


@dataclass(frozen=True)
class Amount:
    """How far some work is; `Meter.update` explains it."""

    what: str
    done: int
    total: int | None
    unit: str
    note: str
    passing: bool


class Meter(abc.ABC):
    """Shows work, each under a name, with its rate and the time left."""

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
        self.show(Amount(what, done, total, unit, note, passing))

    @abc.abstractmethod
    def show(self, work: Amount) -> None:
        """Show how far some work is."""


@contextmanager
def meter(name: str, *, quiet: bool = False) -> Iterator[Meter]:
    """A meter on standard error.

    Args:
        name: what all of the work belongs to, and lines begin with.
        quiet: show nothing.
    """
    console = Console(stderr=True)
    if quiet:
        yield _Silent()
    elif console.is_terminal:
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

    def show(self, work: Amount) -> None:
        pass


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        total = None if task.total is None else int(task.total)
        text = count_text(int(task.completed), total, task.fields["unit"])
        return Text(text, style="progress.download")


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        text = rate_text(task.speed, task.fields["unit"]) if task.speed else ""
        return Text(text, style="progress.data.speed")


class _Bars(Meter):
    """One bar for every work."""

    def __init__(self, name: str, console: Console) -> None:
        self._name, self._console = name, console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            _Count(),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            speed_estimate_period=30,
        )
        self._ids: dict[str, TaskID] = {}

    def tell(self, message: str) -> None:
        _print(self._console, f"{self._name}: {message}")

    def show(self, work: Amount) -> None:
        # Not before there is something to show: what is refused at once has no bar.
        self._bars.start()
        if work.what in self._ids and work.done < self._task(work.what).completed:
            self._remove(work.what)
        if work.what not in self._ids:
            # What an earlier run has done is no part of this one's rate.
            self._ids[work.what] = self._bars.add_task(
                work.what, total=work.total, completed=work.done, unit=work.unit, note=work.note
            )
        fields: dict[str, Any] = {"note": work.note} if work.note else {}
        self._bars.update(self._ids[work.what], completed=work.done, total=work.total, **fields)
        if work.passing and work.done == work.total:
            self._remove(work.what)

    def _task(self, what: str) -> Task:
        return next(task for task in self._bars.tasks if task.id == self._ids[what])

    def _remove(self, what: str) -> None:
        self._bars.remove_task(self._ids.pop(what))

    def stop(self) -> None:
        self._bars.stop()


@dataclass
class _Pace:
    """When a work began, and when it was last shown."""

    began: float
    first: int
    done: int
    shown: float
    ended: bool = False


@dataclass
class _Lines(Meter):
    """A line now and then, at the end, and whenever there is news."""

    name: str
    console: Console
    clock: Callable[[], float] = time.monotonic
    _paces: dict[str, _Pace] = field(default_factory=dict)

    def tell(self, message: str) -> None:
        _print(self.console, f"{self.name}: {message}")

    def show(self, work: Amount) -> None:
        now, done, total = self.clock(), work.done, work.total
        pace = self._paces.get(work.what)
        if pace is None or done < pace.done:
            pace = self._paces[work.what] = _Pace(now, done, done, now)
        pace.done = done
        waited = now - pace.shown > max(_PAUSE, _PART * (now - pace.began))
        worth_it = not work.passing or pace.shown > pace.began
        ended = done == total and not pace.ended and worth_it
        if not work.note and not ended and (done == pace.first or not waited):
            return
        pace.shown, pace.ended = now, done == total
        parts = [] if work.what == self.name else [work.what]
        parts.append(count_text(done, total, work.unit))
        rate = (done - pace.first) / (now - pace.began) if now > pace.began else 0.0
        if rate:
            parts.append(rate_text(rate, work.unit))
            if total is not None and done < total:
                parts.append(f"{duration_text((total - done) / rate)} left")
        _print(self.console, f"{self.name}: {', '.join([*parts, *filter(None, [work.note])])}")


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


def show_training(shown: Meter, name: str) -> Callable[[TrainingProgress], None]:
    """What `train` is to tell its progress to.

    Args:
        shown: shows it.
        name: of the run.
    """

    def update(progress: TrainingProgress) -> None:
        if progress.message is not None:
            shown.tell(progress.message)
        if progress.work is not None:
            shown.update(progress.work.what, *progress.work[1:], unit="tasks", passing=True)
            return
        note = "" if progress.record is None else note_of(progress.record)
        shown.update(name, progress.iteration, progress.num_iterations, unit="it", note=note)

    return update
