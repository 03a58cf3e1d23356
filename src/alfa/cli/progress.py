"""Show the progress of long work: bars in a terminal, and plain lines in files and pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from alfa.cli import lazy

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# The minimum number of seconds between two lines, and its growth with the time since the first.
_MIN_PAUSE, _PAUSE_GROWTH = 10.0, 0.05
# A rate is measured over the last 900 to 1,800 seconds, which include some validations.
_RATE_SECONDS = 900.0


@dataclass
class Work:
    """Some work and its rate; see `Meter.update` for the first attributes."""

    name: str
    unit: str
    transient: bool
    # The time of the first update, and the amount that was already done then.
    began: float
    first: int
    done: int = 0
    total: int | None = None
    note: str = ""
    ended: bool = False

    def __post_init__(self) -> None:
        self.shown = self.began
        # The times and amounts at which the current and the next measurement of the rate begin.
        self.since = self.later = (self.began, self.first)

    @property
    def count(self) -> str:
        """The finished and the total amount as text."""
        scale, digits, unit = (1e6, 1, "MB") if self.unit == "bytes" else (1, 0, self.unit)
        of = "" if self.total is None else f" of {self.total / scale:,.{digits}f}"
        return f"{self.done / scale:,.{digits}f}{of} {unit}"

    def pace(self, now: float) -> str:
        """Format the rate and the remaining time, if known."""
        since, first = self.since
        if now <= since or self.done == first:
            return ""
        rate = (self.done - first) / (now - since)
        scaled, unit = (rate / 1e6, "MB") if self.unit == "bytes" else (rate, self.unit)
        text = f"{scaled:,.0f} {unit}/s" if scaled >= 10 else f"{scaled:.2g} {unit}/s"
        if self.total is None or self.done == self.total:
            return text
        return f"{text}, {duration_text((self.total - self.done) / rate)} left"


class Meter:
    """Shows the progress of work as bars, or as lines that start with the meter's name."""

    def __init__(
        self,
        name: str,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        use_bars: bool,
    ) -> None:
        self.name, self._console, self._clock = name, console, clock
        self._works: dict[str, Work] = {}
        self._ids: dict[str, TaskID] = {}
        self.bars = _bars(console) if use_bars else None

    def print(self, message: str) -> None:
        """Print a message."""
        # Paths and classes may look like markup.
        text = f"{self.name}: {message}"
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def update(
        self,
        name: str,
        done: int,
        total: int | None,
        *,
        unit: str,
        note: str = "",
        transient: bool = False,
    ) -> None:
        """Show the progress of some work, and news in `note`; the unit ``"bytes"`` is shown as MB.

        At its end, transient work loses its bar, and prints a last line only if it printed others.
        """
        now = self._clock()
        work = self._works.get(name)
        if work is None or done < work.done:
            work = self._works[name] = Work(name, unit, transient, now, done)
        work.done, work.total, work.note = done, total, note
        if now - work.later[0] > _RATE_SECONDS:
            work.since, work.later = work.later, (now, done)
        if self.bars is None:
            self._show_line(work, now)
        else:
            self._show_bar(self.bars, work, now)

    def _show_bar(self, bars: Progress, work: Work, now: float) -> None:
        """Update the bar, and print news above it."""
        # Starting only now avoids an empty bar above an early error.
        bars.start()
        if work.name not in self._ids:
            self._ids[work.name] = bars.add_task(work.name, count="", pace="")
        if work.note:
            prefix = "" if work.name == self.name else f"{work.name}, "
            self.print(f"{prefix}{work.count}, {work.note}")
        number, pace = self._ids[work.name], work.pace(now)
        bars.update(number, completed=work.done, total=work.total, count=work.count, pace=pace)
        if work.transient and work.done == work.total:
            bars.remove_task(self._ids.pop(work.name))

    def _show_line(self, work: Work, now: float) -> None:
        """Print a line at intervals, at the end, and for news."""
        is_due = now - work.shown > max(_MIN_PAUSE, _PAUSE_GROWTH * (now - work.began))
        is_short = work.transient and work.shown == work.began
        is_done = work.done == work.total
        ends = is_done and not work.ended and not is_short
        if not work.note and not ends and (work.done == work.first or not is_due):
            return
        work.shown, work.ended = now, is_done
        name = "" if work.name == self.name else work.name
        self.print(", ".join(filter(None, [name, work.count, work.pace(now), work.note])))


@contextmanager
def meter(name: str, *, quiet: bool = False) -> Iterator[Meter]:
    """Show progress on standard error, unless quiet."""
    console = Console(stderr=True, quiet=quiet)
    # Users can force colors on a file, and some terminals cannot move the cursor.
    is_terminal = sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal
    shown = Meter(name, console, time.monotonic, use_bars=is_terminal and not quiet)
    try:
        yield shown
    finally:
        if shown.bars is not None:
            shown.bars.stop()


def _bars(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}", style="progress.download", markup=False),
        TextColumn("{task.fields[pace]}", style="progress.remaining", markup=False),
        console=console,
        # Results on standard output must not move to standard error.
        redirect_stdout=False,
    )


def duration_text(seconds: float) -> str:
    """Format a duration in seconds, minutes, or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def report_unfinished(shown: Meter, run: lazy.runs.Run) -> None:
    """Print a note if the training of a run is not complete."""
    # A pretrained model may need no training.
    if run.result is None and not run.is_pretrained:
        shown.print("training is not complete; results are preliminary")


def show_testing(shown: Meter) -> dict[str, Callable[[int, int], None]]:
    """Return the callbacks of an evaluation, by their names."""

    def on_tasks(done: int, total: int) -> None:
        shown.update("testing", done, total, unit="tasks", transient=True)

    return {"on_tasks": on_tasks, "on_features": show_features(shown)}


def show_features(shown: Meter) -> Callable[[int, int], None]:
    """Return a callback for images whose features are computed."""

    def on_features(done: int, total: int) -> None:
        shown.update("computing features", done, total, unit="images", transient=True)

    return on_features


def show_training(
    shown: Meter, name: str, *, transient: bool = False
) -> Callable[[lazy.training.Progress], None]:
    """Return the `on_progress` callback of a training run, `transient` if it is one of many."""
    # If a meter shows several runs, the name of each precedes its validation.
    prefix = "" if name == shown.name else f"{name}, "

    def update(progress: lazy.training.Progress) -> None:
        if progress.message is not None:
            shown.print(f"{prefix}{progress.message}")
        if progress.work is not None:
            work, done, total, unit = progress.work
            shown.update(f"{prefix}{work}", done, total, unit=unit, transient=True)
            return
        note = "" if progress.record is None else _validation_text(progress.record)
        done, total = progress.iteration, progress.num_iterations
        shown.update(name, done, total, unit="it", note=note, transient=transient)

    return update


def _validation_text(record: dict[str, Any]) -> str:
    loss, accuracy = record["val_loss"], record.get("val_accuracy")
    if loss is None:
        return "validation loss not finite"
    if (metric := record.get("val_metric")) is not None:
        return f"validation metric {metric:.4f}"
    if accuracy is not None:
        return f"validation accuracy {100 * accuracy:.2f} %"
    return f"validation loss {loss:.3f}"
