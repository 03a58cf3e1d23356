"""Progress and tables in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from alfa.train import Progress as TrainingProgress


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.0f} it/s", style="progress.data.speed")


def progress_bars(console: Console) -> Progress:
    """Bars with a rate and the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        speed_estimate_period=30,
    )


def note_of(record: dict[str, Any]) -> str:
    """What a progress line says of the newest metrics."""
    loss = record["val_loss"]
    return "validation loss not finite" if loss is None else f"validation loss {loss:.3f}"


@contextmanager
def show_progress(name: str, *, quiet: bool) -> Iterator[Callable[[TrainingProgress], None]]:
    """A progress bar on standard error, or plain lines where that is not a terminal."""
    console = Console(stderr=True)
    if quiet:
        yield lambda progress: None
    elif console.is_terminal:
        with progress_bars(console) as bars:
            bar = bars.add_task(name, total=None, note="")

            def update(progress: TrainingProgress) -> None:
                if progress.message is not None:
                    console.print(f"{name}: {progress.message}", highlight=False, soft_wrap=True)
                note: dict[str, Any] = (
                    {} if progress.record is None else {"note": note_of(progress.record)}
                )
                bars.update(
                    bar, completed=progress.iteration, total=progress.num_iterations, **note
                )

            yield update
    else:
        yield plain_lines(console, name)


def plain_lines(console: Console, name: str) -> Callable[[TrainingProgress], None]:
    """One line for every validation, with the rate and the time left."""
    started: dict[str, float] = {}

    def update(progress: TrainingProgress) -> None:
        now = time.monotonic()
        began = started.setdefault("time", now)
        first = started.setdefault("iteration", progress.iteration)
        if progress.message is not None:
            console.print(f"{name}: {progress.message}", highlight=False, soft_wrap=True)
        if progress.record is None:
            return
        rate = (progress.iteration - first) / max(now - began, 1e-9)
        left = (progress.num_iterations - progress.iteration) / max(rate, 1e-9)
        console.print(
            f"{name}: {progress.iteration}/{progress.num_iterations}, {rate:.0f} it/s, "
            f"{left:.0f} s left, {note_of(progress.record)}",
            highlight=False,
            soft_wrap=True,
        )

    return update


def interval_text(interval: float | None) -> str:
    """Half the width of an interval, where there is one."""
    return "+- ?" if interval is None else f"+- {interval:.4f}"


def result_table(
    results: dict[str, dict[str, Any]],
    *,
    folder: Path,
    published: dict[str, str] | None = None,
) -> None:
    """A table of test results on standard output."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for header in ("test loss", "95 %", *(["paper"] if published else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for header in ("tasks", "iterations", "seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, result in results.items():
        test = result["test"]
        table.add_row(
            name,
            f"{test['loss']:.4f}",
            interval_text(test["interval"]),
            *([published[name]] if published else []),
            f"{test['num_tasks']}",
            f"{result['num_iterations']}",
            f"{result['seconds']:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(f"\nwritten: {folder}", soft_wrap=True, highlight=False)
