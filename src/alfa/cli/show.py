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
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from alfa.train import Evaluation, Work
from alfa.train import Progress as TrainingProgress

_SECONDS_PER_LINE = 10


def rate_text(rate: float) -> str:
    """With two digits at least."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{rate_text(task.speed or 0)} it/s", style="progress.data.speed")


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
    loss, accuracy = record["val_loss"], record.get("val_accuracy")
    if loss is None:
        return "validation loss not finite"
    if accuracy is not None:
        return f"validation accuracy {100 * accuracy:.2f} %"
    return f"validation loss {loss:.3f}"


@contextmanager
def show_progress(name: str, *, quiet: bool) -> Iterator[Callable[[TrainingProgress], None]]:
    """A progress bar on standard error, or plain lines where that is not a terminal."""
    console = Console(stderr=True)
    if quiet:
        yield lambda progress: None
    elif console.is_terminal:
        with progress_bars(console) as bars:
            bar = bars.add_task(name, total=None, note="")
            beside: dict[str, TaskID] = {}

            def update(progress: TrainingProgress) -> None:
                if progress.work is not None:
                    what, done, total = progress.work
                    if what not in beside:
                        beside[what] = bars.add_task(what, total=total, note="")
                    bars.update(beside[what], completed=done)
                    if done == total:
                        bars.remove_task(beside.pop(what))
                    return
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
    work_line = _work_lines(console, name)

    def update(progress: TrainingProgress) -> None:
        now = time.monotonic()
        began = started.setdefault("time", now)
        first = started.setdefault("iteration", progress.iteration)
        if progress.message is not None:
            console.print(f"{name}: {progress.message}", highlight=False, soft_wrap=True)
        if progress.work is not None:
            work_line(progress.work, now)
        if progress.record is None:
            return
        rate = (progress.iteration - first) / max(now - began, 1e-9)
        left = (progress.num_iterations - progress.iteration) / max(rate, 1e-9)
        console.print(
            f"{name}: {progress.iteration}/{progress.num_iterations}, {rate_text(rate)} it/s, "
            f"{left:.0f} s left, {note_of(progress.record)}",
            highlight=False,
            soft_wrap=True,
        )

    return update


def _work_lines(console: Console, name: str) -> Callable[[Work, float], None]:
    """A line every ten seconds for work beside the iterations."""
    state: dict[str, Any] = {"what": None}

    def show(work: Work, now: float) -> None:
        if work.what != state["what"] or work.done <= state["done"]:
            state.update(what=work.what, began=now, first=work.done, shown=now)
        state["done"] = work.done
        if now - state["shown"] < _SECONDS_PER_LINE or work.done == state["first"]:
            return
        state["shown"] = now
        rate = (work.done - state["first"]) / (now - state["began"])
        console.print(
            f"{name}: {work.what}, {work.done}/{work.total} tasks, {rate_text(rate)} tasks/s, "
            f"{(work.total - work.done) / rate:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )

    return show


@contextmanager
def show_work(what: str, *, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Progress over tasks, as a bar or as lines."""
    console = Console(stderr=True)
    if quiet:
        yield lambda done: None
    elif console.is_terminal:
        with progress_bars(console) as bars:
            bar = bars.add_task(what, total=total, note="")
            yield lambda done: bars.update(bar, completed=done)
    else:
        line = _work_lines(console, what)
        yield lambda done: line(Work("testing", done, total), time.monotonic())


def figure_text(evaluation: Evaluation) -> str:
    """The figure of an evaluation, with its interval."""
    if evaluation.accuracy is not None:
        return f"accuracy {accuracy_text(evaluation.accuracy, evaluation.accuracy_interval)}"
    return f"loss {evaluation.loss:.4f} {interval_text(evaluation.interval)}"


def accuracy_text(accuracy: float, interval: float | None) -> str:
    """In percent."""
    spread = "+- ?" if interval is None else f"+- {100 * interval:.2f}"
    return f"{100 * accuracy:.2f} {spread} %"


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
    accurate = any(result["test"].get("accuracy") is not None for result in results.values())
    figures = ("accuracy, best model", "ensemble") if accurate else ("test loss", "95 %")
    for header in (*figures, *(["paper"] if published else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for header in ("tasks", "iterations", "seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, result in results.items():
        test = result["test"]
        table.add_row(
            name,
            *(_accuracies(result) if accurate else _losses(test)),
            *([published[name]] if published else []),
            f"{test['num_tasks']}",
            f"{result['num_iterations']}",
            f"{result['seconds']:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(f"\nwritten: {folder}", soft_wrap=True, highlight=False)


def _accuracies(result: dict[str, Any]) -> list[str]:
    """Of the best model and of the ensemble, with their intervals."""
    found = [result["test"], result.get("ensemble")]
    return [
        "-" if test is None else accuracy_text(test["accuracy"], test["accuracy_interval"])
        for test in found
    ]


def _losses(test: dict[str, Any]) -> list[str]:
    return [f"{test['loss']:.4f}", interval_text(test["interval"])]
