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


def seeds_text(seeds: SeedStatistics, is_accuracy: bool) -> str:
    """The mean over seeds with its interval, and the standard deviation over seeds."""
    if is_accuracy:
        spread = "" if seeds.std is None else f", std {100 * seeds.std:.2f}"
        return f"{accuracy_text(seeds.mean, seeds.interval)}{spread}"
    spread = "" if seeds.std is None else f", std {seeds.std:.4f}"
    return f"{seeds.mean:.4f} {interval_text(seeds.interval)}{spread}"


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
            escape(name),
            *(_accuracies(result) if accurate else _losses(test)),
            *([published[name]] if published else []),
            f"{test['num_tasks']}",
            f"{result['num_iterations']}",
            f"{result['seconds']:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(f"\nwritten: {escape(str(folder))}", soft_wrap=True, highlight=False)


def _accuracies(result: dict[str, Any]) -> list[str]:
    """Of the best model and of the ensemble, with their intervals."""
    found = [result["test"], result.get("ensemble")]
    return [
        "-" if test is None else accuracy_text(test["accuracy"], test["accuracy_interval"])
        for test in found
    ]


def _losses(test: dict[str, Any]) -> list[str]:
    return [f"{test['loss']:.4f}", interval_text(test["interval"])]
