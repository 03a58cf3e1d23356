"""Print numbers, tables, and JSON on standard output."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table

from alfa.cli import lazy


def print_json(content: object) -> None:
    """Print JSON."""
    typer.echo(json.dumps(content, indent=2))


def print_table(
    headers: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    justify: JustifyMethod = "right",
    wraps: Container[str] = (),
) -> None:
    """Print a table; the first column is left-aligned, and only the columns in `wraps` wrap."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        alignment = justify if number else "left"
        table.add_column(header, justify=alignment, no_wrap=header not in wraps, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Files and pipes get a fixed width. Names of classes and runs may look like markup.
    width = None if Console().is_terminal else 160
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def print_list(title: str, lines: Sequence[str], *, limit: int | None = 5, rest: str = "") -> None:
    """Print the number of lines and the first `limit`; `rest` is the place of the others."""
    if lines:
        shown = "".join(f"\n  - {line}" for line in lines[:limit])
        num_hidden = len(lines[limit:]) if limit else 0
        more = f"\n  and {num_hidden} more in {rest}" if num_hidden else ""
        typer.echo(f"\n{title}: {len(lines)}{shown}{more}")


def figure_text(evaluation: lazy.evaluation.Evaluation) -> str:
    """Format the deciding figure of an evaluation with its name and interval."""
    return f"{evaluation.figure.name} {result_text(vars(evaluation))}"


def accuracy_text(accuracy: float, interval: float | None) -> str:
    """Format an accuracy in percent with its interval."""
    return f"{value_text(100 * accuracy, None if interval is None else 100 * interval, 2)} %"


def value_text(value: float, interval: float | None, places: int = 4) -> str:
    """Format a value with its interval; an unknown interval is shown as a question mark."""
    return f"{value:.{places}f} +- {'?' if interval is None else f'{interval:.{places}f}'}"


def seeds_text(seeds: lazy.evaluation.SeedStatistics, is_accuracy: bool) -> str:
    """Format the mean over seeds with its interval and standard deviation."""
    text = (accuracy_text if is_accuracy else value_text)(seeds.mean, seeds.interval)
    if seeds.std is None:
        return text
    return f"{text}, std {100 * seeds.std:.2f}" if is_accuracy else f"{text}, std {seeds.std:.4f}"


def print_results(
    results: dict[str, dict[str, Any]], *, folder: Path, published: dict[str, str] | None = None
) -> None:
    """Print a table of test results by run."""
    figures = [lazy.evaluation.deciding_figure(each["test"]) for each in results.values()]
    is_better = any(figure.larger_is_better for figure in figures)
    names = "/".join(dict.fromkeys(f.name for f in figures if f.larger_is_better == is_better))
    headers = [f"{names}, best model", "ensemble"] if is_better else ["test loss, 95 % interval"]
    rows = []
    for name, result in results.items():
        test = result["test"]
        cells = [result_text(test), *([result_text(result.get("ensemble"))] if is_better else [])]
        cells += [published[name]] if published else []
        counts = [test["num_tasks"], result["num_iterations"], round(result["seconds"])]
        rows.append([name, *cells, *map(str, counts)])
    paper = ["paper"] if published else []
    print_table(["run", *headers, *paper, "tasks", "iterations", "seconds"], rows)
    for name, result in results.items():
        if "gain" in result:
            prefix = f"{name}: " if results.keys() - {name} else ""
            typer.echo(f"\n{prefix}{gain_text(result)}")
    typer.echo(f"\nwritten: {folder}")


def gain_text(result: Mapping[str, Any]) -> str:
    """Describe the gain of a training over its untrained start in one sentence."""
    if result["best_iteration"] == 0:
        return "training did not improve on the start in validation, so the start is the best model"
    figure = lazy.evaluation.deciding_figure(result["test"])
    scale, places, unit = (100.0, 2, " points") if figure.is_fraction else (1.0, 4, "")

    def text(gain: Mapping[str, Any]) -> str:
        interval = "?" if gain["interval"] is None else f"{scale * gain['interval']:.{places}f}"
        return f"{scale * gain['mean']:+.{places}f} +- {interval}{unit}"

    gains = result["gain"]
    return (
        f"gain of training over the start in {figure.name}: {text(gains['val'])} on validation "
        f"classes, {text(gains['test'])} on test classes (95 % intervals over the same tasks)"
    )


def result_text(test: Mapping[str, Any] | None, *, loss_places: int = 4) -> str:
    """Format the deciding figure of a test with its interval, or a dash without a test."""
    if test is None:
        return "-"
    figure = lazy.evaluation.deciding_figure(test)
    if figure.is_fraction:
        return accuracy_text(figure.value, figure.interval)
    return value_text(figure.value, figure.interval, loss_places)
