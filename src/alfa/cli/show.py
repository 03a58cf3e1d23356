"""Figures and tables in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from alfa.evaluation import Evaluation, SeedStatistics


def wide_console() -> Console:
    """Standard output; a file or a pipe is wide enough for any table."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def figure_text(evaluation: Evaluation) -> str:
    """The accuracy or the loss of an evaluation, with its interval."""
    if evaluation.accuracy is None:
        return f"loss {value_text(evaluation.loss, evaluation.interval)}"
    return f"accuracy {accuracy_text(evaluation.accuracy, evaluation.accuracy_interval)}"


def accuracy_text(accuracy: float, interval: float | None) -> str:
    """An accuracy in percent, with its interval."""
    return f"{value_text(100 * accuracy, None if interval is None else 100 * interval, 2)} %"


def value_text(value: float, interval: float | None, places: int = 4) -> str:
    """A value with its interval, if there is one."""
    return f"{value:.{places}f} +- {'?' if interval is None else f'{interval:.{places}f}'}"


def seeds_text(seeds: SeedStatistics, is_accuracy: bool) -> str:
    """The mean over seeds with its interval, and the standard deviation over seeds."""
    text = (accuracy_text if is_accuracy else value_text)(seeds.mean, seeds.interval)
    if seeds.std is None:
        return text
    return f"{text}, std {100 * seeds.std:.2f}" if is_accuracy else f"{text}, std {seeds.std:.4f}"


def result_table(
    results: dict[str, dict[str, Any]],
    *,
    folder: Path,
    published: dict[str, str] | None = None,
) -> None:
    """Print a table of test results."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    is_accuracy = any(result["test"].get("accuracy") is not None for result in results.values())
    headers = ["accuracy, best model", "ensemble"] if is_accuracy else ["test loss, 95 %"]
    headers += ["paper"] if published else []
    for header in (*headers, "tasks", "iterations", "seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, result in results.items():
        test = result["test"]
        if is_accuracy:
            tests = [test, result.get("ensemble")]
            cells = [
                "-" if each is None else accuracy_text(each["accuracy"], each["accuracy_interval"])
                for each in tests
            ]
        else:
            cells = [value_text(test["loss"], test["interval"])]
        cells += [published[name]] if published else []
        cells += [str(test["num_tasks"]), str(result["num_iterations"]), f"{result['seconds']:.0f}"]
        table.add_row(escape(name), *cells)
    console = Console()
    console.print(table)
    console.print(f"\nwritten: {escape(str(folder))}", soft_wrap=True, highlight=False)
