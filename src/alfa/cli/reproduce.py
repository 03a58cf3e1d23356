"""`alfa reproduce`."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli.train import Device, Json, Threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alfa.paper import Cell, Cost, Job, Measured, Workers
    from alfa.train import Progress

Out = Annotated[Path, typer.Option(help="The folder that all runs are kept in.")]


def reproduce(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, such as `table1`; without any, all listed.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table.")] = False,
    dataset: Annotated[
        list[str] | None, typer.Option(help="Only cells trained or tested on it.")
    ] = None,
    shots: Annotated[list[int] | None, typer.Option(help="Only cells of so many shots.")] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Only these rows, such as `alfa+maml`.")
    ] = None,
    backbone: Annotated[list[str] | None, typer.Option(help="Only conv4, resnet12, ...")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many times, from seed 0 on.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds for each cell: everything runs, no results.")
    ] = False,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Train for so many only; the report says so.")
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="Show the cells and their state, run nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure what it would cost here, run nothing.")
    ] = False,
    jobs_at_once: Annotated[
        int, typer.Option("--jobs", min=1, help="Models to train at once on this machine.")
    ] = 1,
    on: Annotated[
        str | None, typer.Option(help="`ray` spreads the models over a Ray cluster.")
    ] = None,
    out: Out = Path("reproduction"),
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Run the experiments behind the paper's tables, and show them beside its figures.

    What is done is not run again, what was stopped goes on, and cells that share a model train it
    once. Without a table, shows how far all of them are.

    Examples:

        alfa reproduce

        alfa reproduce table1 --dataset miniimagenet --shots 5 --rows alfa+maml --list

        alfa reproduce table8 --seeds 3 --dry-run

        alfa reproduce --all --quick

        alfa reproduce table8 --jobs 2
    """
    from alfa.cli.start import check_device
    from alfa.errors import ConfigError, check_choice
    from alfa.paper import TABLES, plan_jobs, select

    wanted = {
        "dataset": dataset or [],
        "shots": [str(count) for count in shots or []],
        "rows": rows or [],
        "backbone": backbone or [],
    }
    if quick and iterations is not None:
        raise ConfigError("--quick has its own number of iterations; leave --iterations out.")
    if not tables and not everything:
        if any(wanted.values()) or only_list or dry_run:
            raise ConfigError("name the tables that are meant, such as table1, or all with --all.")
        if jobs_at_once > 1 or on is not None:
            raise ConfigError(
                "--jobs and --on are for running, and no table is named; name some, such as "
                "table1, or all with --all."
            )
        _overview(out, seeds=seeds, iterations=iterations, quick=quick, as_json=as_json)
        return
    if tables and everything:
        raise ConfigError(f"--all means every table; leave it out, or {' '.join(tables)}.")
    if (only_list or dry_run) and (jobs_at_once > 1 or on is not None):
        raise ConfigError(
            f"--jobs and --on are for running, but {'--list' if only_list else '--dry-run'} runs "
            "nothing; leave them out, or it."
        )
    if on is not None:
        check_choice("--on", on, ("ray",))
        if jobs_at_once > 1:
            raise ConfigError("--jobs is for this machine alone; Ray decides how many run at once.")
        # Elsewhere, what is here is somewhere else.
        out = out.resolve()
    names = list(TABLES) if everything else _names(tables or [])
    cells = select([TABLES[name] for name in names], wanted)
    if on is None:
        # Jobs of a cluster find out where they run.
        check_device(device)
    jobs = plan_jobs(
        cells, out, num_seeds=seeds, num_iterations=_whole_epochs(iterations), quick=quick
    )
    if only_list:
        _print_cells(cells, jobs, as_json=as_json)
    elif dry_run:
        _estimate(cells, jobs, out, device=device, threads=threads, as_json=as_json)
    else:
        count = None if on == "ray" else jobs_at_once
        _run(cells, jobs, out, count=count, device=device, threads=threads, as_json=as_json)


def _names(tables: list[str]) -> list[str]:
    from alfa.errors import check_choice
    from alfa.paper import TABLES

    known = {name.lower(): name for name in TABLES}
    for name in tables:
        check_choice("TABLES", name.lower(), known)
    return list(dict.fromkeys(known[name.lower()] for name in tables))


def _whole_epochs(iterations: int | None) -> int | None:
    """So many, or more to the end of an epoch: a run that is trained further later is then the
    same as one that never stopped."""
    from alfa.config import Outer

    if iterations is None:
        return None
    epoch = Outer().validate_every
    rounded = -(-iterations // epoch) * epoch
    if rounded != iterations:
        typer.echo(
            f"alfa: --iterations {iterations} is taken as {rounded}, whole epochs of {epoch}.",
            err=True,
        )
    return rounded


def _run(
    cells: Sequence[Cell],
    jobs: Sequence[Job],
    out: Path,
    *,
    count: int | None,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Run jobs here, so many at once, or wherever Ray puts them."""
    from alfa.cli.progress import meter, show_training
    from alfa.cli.stopping import stoppable
    from alfa.paper import reproduce as run_jobs
    from alfa.paper import spread

    num_ended = 0
    with stoppable(quiet=as_json) as wish:
        try:
            with meter("reproduce", quiet=as_json) as shown:
                shows = {job.name: show_training(shown, job.name, passing=True) for job in jobs}

                def before(job: Job) -> None:
                    if count == 1:
                        _set_up(device, threads, job)
                    shown.update("models", num_ended, len(jobs), unit="models")

                def after(job: Job) -> None:
                    nonlocal num_ended
                    num_ended += 1
                    shown.update("models", num_ended, len(jobs), unit="models")

                def on_progress(job: Job, progress: Progress) -> None:
                    shows[job.name](progress)

                if count == 1:
                    outcome = run_jobs(
                        jobs,
                        device=device,
                        before=before,
                        after=after,
                        should_stop=wish,
                        on_progress=on_progress,
                    )
                else:
                    outcome = spread(
                        jobs,
                        _workers(count, out, device=device, threads=threads),
                        before=before,
                        after=after,
                        should_stop=wish,
                        on_progress=on_progress,
                    )
        except KeyboardInterrupt:
            wish.tell("the same command goes on from here")
            raise typer.Exit(wish.code) from None
    _print_cells(cells, jobs, as_json=as_json)
    for name, sentence in outcome.failed.items():
        typer.echo(f"alfa: {name} failed: {sentence}", err=True)
    for name in outcome.busy:
        typer.echo(f"alfa: {name} is being run by another process.", err=True)
    raise typer.Exit(1 if outcome.failed else 0)


def _workers(count: int | None, out: Path, *, device: str, threads: int | None) -> Workers:
    from functools import partial

    from alfa.paper import LocalWorkers

    if count is not None:
        before = partial(_set_up, device, threads, share=count)
        return LocalWorkers(count, device=device, before=before)
    from alfa.paper._ray import RayWorkers

    own = threads or 1
    return RayWorkers(
        device=device,
        threads=own,
        before=partial(_set_up, device, own),
        out=out,
        address=os.environ.get("RAY_ADDRESS", "auto"),
    )


def _set_up(device: str, threads: int | None, job: Job, *, share: int = 1) -> None:
    from alfa.cli.start import set_up

    set_up(job.experiment, device=device, threads=threads, share=share)


def _estimate(
    cells: Sequence[Cell],
    jobs: Sequence[Job],
    out: Path,
    *,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from alfa.cli.progress import meter
    from alfa.cli.start import set_up
    from alfa.paper import estimate

    with meter("measuring", quiet=as_json) as shown:
        costs = estimate(
            jobs,
            out,
            device=device,
            before=lambda job: set_up(job.experiment, device=device, threads=threads),
            on_measured=lambda done, total: shown.update("measuring", done, total, unit="models"),
        )
    _print_costs(jobs, costs, as_json=as_json)


def _overview(out: Path, *, seeds: int, iterations: int | None, quick: bool, as_json: bool) -> None:
    """Every table, and how many of its cells are how far."""
    from rich.table import Table

    from alfa.cli.show import wide_console
    from alfa.paper import TABLES, plan_jobs

    found: list[dict[str, Any]] = []
    for name, table in TABLES.items():
        jobs = plan_jobs(table.cells, out, num_seeds=seeds, num_iterations=iterations, quick=quick)
        states = dict(Counter(row["state"] for row in _rows(table.cells, jobs)))
        row: dict[str, Any] = {"table": name, "title": table.title, "cells": len(table.cells)}
        found.append({**row, "states": states, "repeats": list(table.repeats)})
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("table", "cells", "state", "what it compares"):
        shown.add_column(header, no_wrap=header != "what it compares")
    for row in found:
        told = ", ".join(f"{count} {state}" for state, count in row["states"].items())
        repeated = ", ".join(TABLES[name].label for name in row["repeats"])
        cells = str(row["cells"]) if row["cells"] else "-"
        shown.add_row(row["table"], cells, told or f"repeats {repeated}", row["title"])
    wide_console().print(shown)
    typer.echo(f"\nkept in {out}; `alfa reproduce table1 --list` shows the cells of one.")


def _rows(cells: Sequence[Cell], jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """How far every cell is, from every seed."""
    from alfa.paper import look, measured

    served = [(cell, job) for cell in cells for job in jobs if cell in job.cells]
    rows: list[dict[str, Any]] = []
    for cell, job in served:
        state, note = look(job, cell)
        rows.append(
            {
                "id": cell.id,
                "seed": job.experiment.seed,
                "state": str(state),
                "note": note,
                "published": cell.published.text,
                "num_iterations_wanted": cell.experiment.outer.num_iterations,
                "measured": _as_dict(measured(job, cell)),
                "digits": 2 if cell.metric == "accuracy" else 3,
            }
        )
    return rows


def _as_dict(found: Measured | None) -> dict[str, Any] | None:
    from dataclasses import asdict

    return None if found is None else {**asdict(found), "path": str(found.path)}


def _print_cells(cells: Sequence[Cell], jobs: Sequence[Job], *, as_json: bool) -> None:
    from rich.table import Table

    from alfa.cli.show import wide_console

    rows = _rows(cells, jobs)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    # In a narrow terminal, what gives way is the name.
    for header in ("cell", "seed", "state", "published", "measured", "iterations"):
        table.add_column(header, no_wrap=header != "cell", overflow="fold")
    quick = False
    for row in rows:
        found = row["measured"]
        quick = quick or bool(found and found["is_quick"])
        table.add_row(
            row["id"],
            str(row.get("seed", "-")),
            row["state"],
            row["published"],
            "-" if found is None else _figure(found, row["digits"]),
            "-" if found is None else _iterations(found, row["num_iterations_wanted"]),
        )
    wide_console().print(table)
    if quick:
        typer.echo("\nquick: these figures show that everything runs, and are no results.")
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row["note"]:
            notes.setdefault(row["note"], []).append(row["id"])
    for note, ids in notes.items():
        others = f" and {len(ids) - 1} others" if ids[1:] else ""
        typer.echo(f"  - {ids[0]}{others}: {note}")


def _print_costs(jobs: Sequence[Job], costs: dict[str, Cost], *, as_json: bool) -> None:
    """What is left to do, and what it would take."""
    from dataclasses import asdict

    from rich.table import Table

    from alfa.cli.progress import duration_text
    from alfa.cli.show import wide_console

    if as_json:
        typer.echo(json.dumps({name: asdict(cost) for name, cost in costs.items()}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("model to train", "cells", "datasets", "iterations", "time", "memory"):
        table.add_column(header, no_wrap=header != "model to train", overflow="fold")
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
    done = len(jobs) - len(costs)
    typer.echo(
        f"\n{len(costs)} models to train, {done} done; about {duration_text(total)} in all, from "
        "what was measured on this machine. Memory is that of the whole process. Nothing was run."
    )


def _iterations(found: dict[str, Any], wanted: int) -> str:
    """Those done, and those that the cell asks for if they are others."""
    done = found["num_iterations"]
    # Where there is nothing to train, none are missing.
    if done == wanted or not found["trains"]:
        return f"{done:,}"
    return f"{done:,} {'of' if done < wanted else 'instead of'} {wanted:,}"


def _figure(found: dict[str, Any], digits: int) -> str:
    if found["is_quick"]:
        return "quick"
    interval = "?" if found["interval"] is None else f"{found['interval']:.{digits}f}"
    return f"{found['value']:.{digits}f} +- {interval}"
