"""`alfa reproduce`."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import duration_text, meter, show_training
from alfa.cli.show import print_json, print_table, value_text
from alfa.cli.start import Computing
from alfa.cli.stopping import stoppable
from alfa.errors import ConfigError, check_choice

if TYPE_CHECKING:
    from alfa.paper import Cell, Cost, Job, JobResult, Workers


def reproduce(
    tables: Annotated[list[str] | None, Argument(help="Tables, such as `table1`.")] = None,
    everything: Annotated[bool, Option("--all", help="Reproduce all tables.")] = False,
    dataset: Annotated[list[str] | None, Option(help="Only cells with this dataset.")] = None,
    shots: Annotated[list[int] | None, Option(help="Only cells with this shot.")] = None,
    rows: Annotated[list[str] | None, Option(help="Only rows such as `alfa+maml`.")] = None,
    backbone: Annotated[list[str] | None, Option(help="Only cells with this backbone.")] = None,
    seeds: Annotated[int, Option(min=1, help="Number of seeds, starting from 0.")] = 1,
    quick: Annotated[bool, Option("--quick", help="Only check that every cell runs.")] = False,
    iterations: Annotated[int | None, Option(min=1, help="Outer iterations per model.")] = None,
    only_list: Annotated[bool, Option("--list", help="List the cells and their states.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only estimate time and memory.")] = False,
    jobs_at_once: Annotated[int, Option("--jobs", min=1, help="Models to train in parallel.")] = 1,
    on: Annotated[str | None, Option(help="`ray` trains on a Ray cluster.")] = None,
    out: Annotated[Path, Option(help="Folder for all runs.")] = Path("reproduction"),
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Run the experiments of the paper's tables, and show the results next to the paper's.

    The command skips complete cells and resumes interrupted ones. Cells with the same model share
    its training. Options such as --shots are repeatable. The report mentions a changed number of
    iterations. `--on ray` uses a running Ray cluster, or starts one on this machine. Without
    tables, the command shows the states of all tables.

    Examples:

        alfa reproduce
        alfa reproduce table1 --dataset miniimagenet --shots 5 --rows alfa+maml --list
        alfa reproduce table8 --seeds 3 --dry-run
        alfa reproduce --all --quick
        alfa reproduce table8 --jobs 2
    """
    paper, computing = lazy.paper, Computing(device, threads, as_json)
    wanted = {"dataset": dataset or [], "rows": rows or [], "backbone": backbone or []}
    wanted["shots"] = [str(count) for count in shots or []]
    is_parallel = jobs_at_once > 1 or on is not None
    if quick and iterations is not None:
        raise ConfigError("--quick sets the number of iterations; omit --iterations.")
    if tables and everything:
        raise ConfigError(f"--all selects every table; omit --all or {' '.join(tables)}.")
    if not tables and not everything:
        if any(wanted.values()) or only_list or dry_run or is_parallel:
            raise ConfigError("TABLES is missing; name tables, such as table1, or add --all.")
        plan = partial(
            paper.plan_jobs, out=out, num_seeds=seeds, num_iterations=iterations, quick=quick
        )
        planned = {name: plan(table.cells) for name, table in paper.TABLES.items()}
        _print_tables(planned, out, as_json=as_json)
        return
    if (only_list or dry_run) and is_parallel:
        mode = "--list" if only_list else "--dry-run"
        raise ConfigError(f"{mode} trains nothing, so --jobs and --on do not apply; omit them.")
    if on is not None:
        check_choice("--on", on, ("ray",))
        if jobs_at_once > 1:
            raise ConfigError("--jobs applies only to this machine, not to Ray; omit it.")
        # Ray workers have a different working directory.
        out = out.resolve()
    names = list(paper.TABLES) if everything else opts.table_names("TABLES", tables or [])
    cells = paper.select([paper.TABLES[name] for name in names], wanted)
    if on is None:
        # Check the device only on this machine; the workers of a cluster check their own.
        lazy._runtime.check_device(device, name="--device")
    iterations = _whole_epochs(iterations)
    jobs = paper.plan_jobs(cells, out, num_seeds=seeds, num_iterations=iterations, quick=quick)
    if only_list:
        _print_cells(cells, jobs, as_json=as_json)
    elif dry_run:
        with meter("measuring", quiet=as_json) as shown:
            costs = paper.estimate(
                jobs,
                out,
                device=device,
                before=partial(_set_up, computing),
                on_measured=lambda done, all_: shown.update("measuring", done, all_, unit="models"),
            )
        _print_costs(jobs, costs, as_json=as_json)
    else:
        results = _run(jobs, out, None if on == "ray" else jobs_at_once, computing)
        _print_cells(cells, jobs, as_json=as_json)
        for name, message in results.failed.items():
            typer.echo(f"alfa: {name} failed: {message}", err=True)
        for name in results.busy:
            typer.echo(f"alfa: skipped {name}, which another process is running.", err=True)
        raise typer.Exit(1 if results.failed else 0)


def _whole_epochs(iterations: int | None) -> int | None:
    """Round up to whole epochs, so that an extended run equals one long run."""
    if iterations is None:
        return None
    epoch = lazy.config.Outer().validate_every
    rounded = -(-iterations // epoch) * epoch
    if rounded != iterations:
        change = f"--iterations {iterations} up to {rounded}, a multiple of {epoch} (one epoch)"
        typer.echo(f"alfa: rounded {change}.", err=True)
    return rounded


def _run(jobs: Sequence[Job], out: Path, count: int | None, computing: Computing) -> JobResult:
    """Run `count` jobs at a time on this machine, or all on a Ray cluster if `count` is None."""
    paper, quiet = lazy.paper, computing.as_json
    hint = "run the same command again to continue"
    with stoppable(quiet=quiet, hint=hint) as request, meter("reproduce", quiet=quiet) as shown:
        shows = {job.name: show_training(shown, job.name, transient=True) for job in jobs}
        num_ended = itertools.count(1)
        shown.update("models", 0, len(jobs), unit="models")
        options: dict[str, Any] = {
            "after": lambda job: shown.update("models", next(num_ended), len(jobs), unit="models"),
            "should_stop": request,
            "on_progress": lambda job, progress: shows[job.name](progress),
        }
        if count != 1:
            return paper.run_parallel(jobs, _workers(count, out, computing), **options)
        before = partial(_set_up, computing)
        return paper.reproduce(jobs, device=computing.device, before=before, **options)


def _workers(count: int | None, out: Path, computing: Computing) -> Workers:
    device = computing.device
    if count is not None:
        before = partial(_set_up, computing, share=count)
        return lazy.paper.LocalWorkers(count, device=device, before=before)
    threads, address = computing.threads or 1, os.environ.get("RAY_ADDRESS")
    before = partial(_set_up, Computing(device, threads))
    return lazy.paper.RayWorkers(
        device=device, threads=threads, before=before, out=out, address=address
    )


def _set_up(computing: Computing, job: Job, *, share: int = 1) -> None:
    computing.set_up(job.experiment, share=share)


def _print_tables(jobs_by_table: Mapping[str, Sequence[Job]], out: Path, *, as_json: bool) -> None:
    """Print every table of the paper with the states of its cells."""
    found: list[dict[str, Any]] = []
    for name, jobs in jobs_by_table.items():
        table = lazy.paper.TABLES[name]
        states = dict(Counter(cell["state"] for cell in _cells(table.cells, jobs)))
        facts = {"table": name, "title": table.title, "cells": len(table.cells), "states": states}
        found.append({**facts, "repeats": list(table.repeats)})
    if as_json:
        print_json(found)
        return
    rows = []
    for row in found:
        state = ", ".join(f"{count} {state}" for state, count in row["states"].items())
        labels = [lazy.paper.TABLES[name].label for name in row["repeats"]]
        state += f"; repeats {', '.join(labels)}" if labels else ""
        rows.append([row["table"], str(row["cells"]), state, row["title"]])
    print_table(["table", "cells", "state", "title"], rows, justify="left", wraps=("title",))
    typer.echo(f"\nruns are in {out}; `alfa reproduce table1 --list` lists the cells of table1.")


def _print_cells(cells: Sequence[Cell], jobs: Sequence[Job], *, as_json: bool) -> None:
    """Print the state of every cell, and its measurement next to the published result."""
    found = _cells(cells, jobs)
    if as_json:
        print_json(found)
        return
    rows = []
    notes: dict[str, list[str]] = {}
    for cell in found:
        measured, wanted = cell["measured"], cell["num_iterations_wanted"]
        result = iterations = "-"
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
        num_others = len(ids) - 1
        others = f" and {num_others} other{'s' * (num_others > 1)}" if num_others else ""
        typer.echo(f"  - {ids[0]}{others}: {note}")


def _print_costs(jobs: Sequence[Job], costs: Mapping[str, Cost], *, as_json: bool) -> None:
    if as_json:
        print_json({name: asdict(cost) for name, cost in costs.items()})
        return
    rows = []
    for job in (job for job in jobs if job.name in costs):
        cost = costs[job.name]
        datasets = ", ".join(dict.fromkeys(name for cell in job.cells for name in cell.datasets))
        iterations = f"{job.experiment.outer.num_iterations:,}" if cost.trains else "-"
        resources = duration_text(cost.seconds), f"{cost.memory / 1e9:.1f} GB"
        rows.append([job.name, str(len(job.cells)), datasets or "-", iterations, *resources])
    headers = ("model to train", "cells", "datasets", "iterations", "time", "memory")
    print_table(headers, rows, justify="left", wraps=("model to train",))
    total = sum(cost.seconds for cost in costs.values())
    typer.echo(
        f"\n{len(costs)} models to train, {len(jobs) - len(costs)} done; estimated time on this "
        f"machine: {duration_text(total)}. Memory is the peak of the process. Nothing was trained."
    )


def _cells(cells: Sequence[Cell], jobs: Sequence[Job]) -> list[dict[str, Any]]:
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
