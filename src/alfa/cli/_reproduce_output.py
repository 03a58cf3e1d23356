"""Tables that `alfa reproduce` prints: tables of the paper, their cells, and the costs of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from alfa.cli import lazy
from alfa.cli.progress import duration_text
from alfa.cli.show import print_json, print_table, value_text


def print_tables(
    jobs_by_table: Mapping[str, Sequence[lazy.paper.Job]], out: Path, *, as_json: bool
) -> None:
    """Print every table of the paper with the states of its cells."""
    tables = lazy.paper.TABLES
    found: list[dict[str, Any]] = [
        {
            "table": name,
            "title": tables[name].title,
            "cells": len(tables[name].cells),
            "states": dict(Counter(cell["state"] for cell in _cells(tables[name].cells, jobs))),
            "repeats": list(tables[name].repeats),
        }
        for name, jobs in jobs_by_table.items()
    ]
    if as_json:
        print_json(found)
        return
    rows = []
    for table in found:
        states = ", ".join(f"{count} {state}" for state, count in table["states"].items())
        repeats = f"repeats {', '.join(tables[name].label for name in table['repeats'])}"
        cells = str(table["cells"]) if table["cells"] else "-"
        rows.append([table["table"], cells, states or repeats, table["title"]])
    print_table(["table", "cells", "state", "title"], rows, justify="left", wraps=("title",))
    typer.echo(f"\nruns are in {out}; `alfa reproduce table1 --list` lists the cells of table1.")


def print_cells(
    cells: Sequence[lazy.paper.Cell], jobs: Sequence[lazy.paper.Job], *, as_json: bool
) -> None:
    """Print the state of every cell, and its measurement next to the published result."""
    found = _cells(cells, jobs)
    if as_json:
        print_json(found)
        return
    rows = []
    notes: dict[str, list[str]] = {}
    for cell in found:
        measured, wanted = cell["measured"], cell["num_iterations_wanted"]
        result, iterations = "-", "-"
        if measured is not None:
            result = value_text(measured["value"], measured["interval"], cell["digits"])
            result = "quick" if measured["is_quick"] else result
            iterations = _iterations(measured, wanted)
        facts = (cell["id"], str(cell["seed"]), cell["state"], cell["published"])
        rows.append([*facts, result, iterations])
        if cell["note"]:
            notes.setdefault(cell["note"], []).append(cell["id"])
    headers = ("cell", "seed", "state", "published", "measured", "iterations")
    print_table(headers, rows, justify="left", wraps=("cell",))
    if any(cell["measured"] and cell["measured"]["is_quick"] for cell in found):
        typer.echo("\nquick: these runs only show that everything works; they are not results.")
    for note, ids in notes.items():
        others = f" and {len(ids) - 1} others" if ids[1:] else ""
        typer.echo(f"  - {ids[0]}{others}: {note}")


def print_costs(
    jobs: Sequence[lazy.paper.Job], costs: Mapping[str, lazy.paper.Cost], *, as_json: bool
) -> None:
    """Print the remaining cost of every job."""
    if as_json:
        print_json({name: asdict(cost) for name, cost in costs.items()})
        return
    rows = []
    for job in jobs:
        if job.name in costs:
            cost = costs[job.name]
            datasets = dict.fromkeys(name for cell in job.cells for name in cell.datasets)
            rows.append(
                [
                    job.name,
                    str(len(job.cells)),
                    ", ".join(datasets) or "-",
                    f"{job.experiment.outer.num_iterations:,}" if cost.trains else "-",
                    duration_text(cost.seconds),
                    f"{cost.memory / 1e9:.1f} GB",
                ]
            )
    headers = ("model to train", "cells", "datasets", "iterations", "time", "memory")
    print_table(headers, rows, justify="left", wraps=("model to train",))
    total = sum(cost.seconds for cost in costs.values())
    typer.echo(
        f"\n{len(costs)} models to train, {len(jobs) - len(costs)} done; estimated total time: "
        f"{duration_text(total)}, from measurements on this machine. Memory is for the whole "
        "process. Nothing was trained."
    )


def _cells(
    cells: Sequence[lazy.paper.Cell], jobs: Sequence[lazy.paper.Job]
) -> list[dict[str, Any]]:
    """Describe the state of every cell for every seed."""
    rows: list[dict[str, Any]] = []
    for cell, job in ((cell, job) for cell in cells for job in jobs if cell in job.cells):
        state, note = lazy.paper.cell_status(job, cell)
        found = lazy.paper.measurement(job, cell)
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


def _iterations(measured: dict[str, Any], wanted: int) -> str:
    """Format the number of iterations, and the cell's number if it differs."""
    done = measured["num_iterations"]
    if done == wanted or not measured["trains"]:
        return f"{done:,}"
    return f"{done:,} {'of' if done < wanted else 'instead of'} {wanted:,}"
