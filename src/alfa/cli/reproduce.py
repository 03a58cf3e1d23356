"""`alfa reproduce`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli._reproduce_output import print_cells, print_costs, print_tables
from alfa.cli.progress import meter, show_training
from alfa.cli.start import check_device, set_up
from alfa.cli.stopping import stoppable
from alfa.errors import ConfigError, check_choice


def reproduce(
    tables: Annotated[
        list[str] | None,
        Argument(help="Tables, such as `table1`; without tables, the command lists all."),
    ] = None,
    everything: Annotated[bool, Option("--all", help="Reproduce all tables.")] = False,
    dataset: Annotated[
        list[str] | None, Option(help="Select cells with this dataset; repeatable.")
    ] = None,
    shots: Annotated[
        list[int] | None, Option(help="Select cells with this shot; repeatable.")
    ] = None,
    rows: Annotated[
        list[str] | None, Option(help="Select rows, such as `alfa+maml`; repeatable.")
    ] = None,
    backbone: Annotated[
        list[str] | None, Option(help="Select cells with this backbone; repeatable.")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="Number of seeds, starting from 0.")] = 1,
    quick: Annotated[
        bool, Option("--quick", help="Check in seconds that every cell works; gives no results.")
    ] = False,
    iterations: Annotated[
        int | None, Option(min=1, help="Train for this many outer iterations; the report says so.")
    ] = None,
    only_list: Annotated[
        bool, Option("--list", help="List the cells and their states without training.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Estimate the cost on this machine without training.")
    ] = False,
    jobs_at_once: Annotated[
        int, Option("--jobs", min=1, help="Number of models to train in parallel.")
    ] = 1,
    on: Annotated[
        str | None, Option(help="`ray` trains on a Ray cluster, or starts one on this machine.")
    ] = None,
    out: Annotated[Path, Option(help="Folder of all runs.")] = Path("reproduction"),
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Run the experiments of the paper's tables, and show the results next to the paper's.

    The command skips complete cells and resumes interrupted ones. Cells with the same model share
    its training. Without a table, it shows the states of all tables.

    Examples:

        alfa reproduce
        alfa reproduce table1 --dataset miniimagenet --shots 5 --rows alfa+maml --list
        alfa reproduce table8 --seeds 3 --dry-run
        alfa reproduce --all --quick
        alfa reproduce table8 --jobs 2
    """
    paper = lazy.paper
    wanted = {
        "dataset": dataset or [],
        "shots": [str(count) for count in shots or []],
        "rows": rows or [],
        "backbone": backbone or [],
    }
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
        print_tables(planned, out, as_json=as_json)
        return
    if (only_list or dry_run) and is_parallel:
        mode = "--list" if only_list else "--dry-run"
        raise ConfigError(f"{mode} trains nothing, so --jobs and --on do not apply; omit them.")
    if on is not None:
        check_choice("--on", on, ("ray",))
        if jobs_at_once > 1:
            raise ConfigError("--jobs applies only to this machine, not to Ray; omit it.")
        # Workers have other working directories.
        out = out.resolve()
    names = list(paper.TABLES) if everything else _table_names(tables or [])
    cells = paper.select([paper.TABLES[name] for name in names], wanted)
    if on is None:
        # Workers of a cluster check their own devices.
        check_device(device)
    iterations = _whole_epochs(iterations)
    jobs = paper.plan_jobs(cells, out, num_seeds=seeds, num_iterations=iterations, quick=quick)
    if only_list:
        print_cells(cells, jobs, as_json=as_json)
    elif dry_run:
        with meter("measuring", quiet=as_json) as shown:
            costs = paper.estimate(
                jobs,
                out,
                device=device,
                before=partial(_set_up, device, threads),
                on_measured=lambda done, all_: shown.update("measuring", done, all_, unit="models"),
            )
        print_costs(jobs, costs, as_json=as_json)
    else:
        count = None if on == "ray" else jobs_at_once
        results = _run(jobs, out, count=count, device=device, threads=threads, quiet=as_json)
        print_cells(cells, jobs, as_json=as_json)
        for name, message in results.failed.items():
            typer.echo(f"alfa: {name} failed: {message}", err=True)
        for name in results.busy:
            typer.echo(f"alfa: skipped {name}, which another process is running.", err=True)
        raise typer.Exit(1 if results.failed else 0)


def _table_names(tables: list[str]) -> list[str]:
    known = {name.lower(): name for name in lazy.paper.TABLES}
    for name in tables:
        check_choice("TABLES", name.lower(), known)
    return list(dict.fromkeys(known[name.lower()] for name in tables))


def _whole_epochs(iterations: int | None) -> int | None:
    """Round up to whole epochs, so that a run can be resumed as if it had never stopped."""
    if iterations is None:
        return None
    epoch = lazy.config.Outer().validate_every
    rounded = -(-iterations // epoch) * epoch
    if rounded != iterations:
        message = (
            f"alfa: rounded --iterations {iterations} up to {rounded}, whole epochs of {epoch}."
        )
        typer.echo(message, err=True)
    return rounded


def _run(
    jobs: Sequence[lazy.paper.Job],
    out: Path,
    *,
    count: int | None,
    device: str,
    threads: int | None,
    quiet: bool,
) -> lazy.paper.JobResult:
    """Run `count` jobs at a time on this machine, or all on a Ray cluster if `count` is None."""
    paper = lazy.paper
    num_ended = 0
    with stoppable(quiet=quiet) as stop_request:
        try:
            with meter("reproduce", quiet=quiet) as shown:
                shows = {job.name: show_training(shown, job.name, transient=True) for job in jobs}

                def before(job: lazy.paper.Job) -> None:
                    if count == 1:
                        _set_up(device, threads, job)
                    shown.update("models", num_ended, len(jobs), unit="models")

                def after(job: lazy.paper.Job) -> None:
                    nonlocal num_ended
                    num_ended += 1
                    shown.update("models", num_ended, len(jobs), unit="models")

                run = (
                    partial(paper.reproduce, jobs, device=device)
                    if count == 1
                    else partial(paper.run_parallel, jobs, _workers(count, out, device, threads))
                )
                return run(
                    before=before,
                    after=after,
                    should_stop=stop_request,
                    on_progress=lambda job, progress: shows[job.name](progress),
                )
        except KeyboardInterrupt:
            stop_request.report("run the same command again to continue")
            raise typer.Exit(stop_request.exit_code) from None


def _workers(count: int | None, out: Path, device: str, threads: int | None) -> lazy.paper.Workers:
    if count is not None:
        before = partial(_set_up, device, threads, share=count)
        return lazy.paper.LocalWorkers(count, device=device, before=before)
    threads = threads or 1
    return lazy.paper.RayWorkers(
        device=device,
        threads=threads,
        before=partial(_set_up, device, threads),
        out=out,
        address=os.environ.get("RAY_ADDRESS"),
    )


def _set_up(device: str, threads: int | None, job: lazy.paper.Job, *, share: int = 1) -> None:
    set_up(job.experiment, device=device, threads=threads, share=share)
