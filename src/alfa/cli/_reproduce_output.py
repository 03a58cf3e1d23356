"""What `alfa reproduce` prints: the tables, their cells, and the costs of jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from alfa.cli.progress import duration_text
from alfa.cli.show import wide_console
from alfa.paper import TABLES, Cell, Cost, Job, cell_status, measurement


def print_tables(jobs_by_table: Mapping[str, Sequence[Job]], out: Path, *, as_json: bool) -> None:
    """Print every table, and the states of its cells."""
    found: list[dict[str, Any]] = []
    for name, jobs in jobs_by_table.items():
        table = TABLES[name]
        found.append(
            {
                "table": name,
                "title": table.title,
                "cells": len(table.cells),
                "states": dict(Counter(row["state"] for row in _rows(table.cells, jobs))),
                "repeats": list(table.repeats),
            }
        )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    shown = _table("table", "cells", "state", "what it compares", wraps="what it compares")
    for row in found:
        states_text = ", ".join(f"{count} {state}" for state, count in row["states"].items())
        repeated = ", ".join(TABLES[name].label for name in row["repeats"])
        cells = str(row["cells"]) if row["cells"] else "-"
        shown.add_row(row["table"], cells, states_text or f"repeats {repeated}", row["title"])
    wide_console().print(shown)
    typer.echo(f"\nkept in {out}; `alfa reproduce table1 --list` shows the cells of one.")


def print_cells(cells: Sequence[Cell], jobs: Sequence[Job], *, as_json: bool) -> None:
    """Print the state and measurement of every cell, beside the published figure."""
    rows = _rows(cells, jobs)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = _table("cell", "seed", "state", "published", "measured", "iterations", wraps="cell")
    notes: dict[str, list[str]] = {}
    for row in rows:
        found = row["measured"]
        table.add_row(
            *(row["id"], str(row["seed"]), row["state"], row["published"]),
            "-" if found is None else _figure(found, row["digits"]),
            "-" if found is None else _iterations(found, row["num_iterations_wanted"]),
        )
        if row["note"]:
            notes.setdefault(row["note"], []).append(row["id"])
    wide_console().print(table)
    if any(row["measured"] and row["measured"]["is_quick"] for row in rows):
        typer.echo("\nquick: these figures show that everything runs, and are no results.")
    for note, ids in notes.items():
        others = f" and {len(ids) - 1} others" if ids[1:] else ""
        typer.echo(f"  - {ids[0]}{others}: {note}")


def print_costs(jobs: Sequence[Job], costs: Mapping[str, Cost], *, as_json: bool) -> None:
    """Print the remaining cost of every job."""
    if as_json:
        typer.echo(json.dumps({name: asdict(cost) for name, cost in costs.items()}, indent=2))
        return
    headers = ("model to train", "cells", "datasets", "iterations", "time", "memory")
    table = _table(*headers, wraps="model to train")
    for job in jobs:
        if job.name in costs:
            cost = costs[job.name]
            datasets = dict.fromkeys(name for cell in job.cells for name in cell.datasets)
            table.add_row(
                job.name,
                str(len(job.cells)),
                ", ".join(datasets) or "-",
                f"{job.experiment.outer.num_iterations:,}" if cost.trains else "-",
                duration_text(cost.seconds),
                f"{cost.memory / 1e9:.1f} GB",
            )
    wide_console().print(table)
    total = sum(cost.seconds for cost in costs.values())
    typer.echo(
        f"\n{len(costs)} models to train, {len(jobs) - len(costs)} done; about "
        f"{duration_text(total)} in all, from what was measured on this machine. Memory is that of "
        "the whole process. Nothing was run."
    )


def _table(*headers: str, wraps: str) -> Table:
    """A table whose column `wraps` gives way in a narrow terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, no_wrap=header != wraps, overflow="fold")
    return table


def _rows(cells: Sequence[Cell], jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """The state of every cell from every seed."""
    rows: list[dict[str, Any]] = []
    for cell, job in ((cell, job) for cell in cells for job in jobs if cell in job.cells):
        state, note = cell_status(job, cell)
        found = measurement(job, cell)
        rows.append(
            {
                "id": cell.id,
                "seed": job.experiment.seed,
                "state": str(state),
                "note": note,
                "published": cell.published.text,
                "num_iterations_wanted": cell.experiment.outer.num_iterations,
                "measured": None if found is None else {**asdict(found), "path": str(found.path)},
                "digits": 2 if cell.metric == "accuracy" else 3,
            }
        )
    return rows


def _iterations(found: dict[str, Any], wanted: int) -> str:
    """The iterations done, and those of the cell if they differ."""
    done = found["num_iterations"]
    if done == wanted or not found["trains"]:
        return f"{done:,}"
    return f"{done:,} {'of' if done < wanted else 'instead of'} {wanted:,}"


def _figure(found: dict[str, Any], digits: int) -> str:
    if found["is_quick"]:
        return "quick"
    interval = "?" if found["interval"] is None else f"{found['interval']:.{digits}f}"
    return f"{found['value']:.{digits}f} +- {interval}"
