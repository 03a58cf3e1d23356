"""`alfa reproduce`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli._options import Device, Json, Threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alfa.paper import Job, JobResult, Workers
    from alfa.training import Progress

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
        str | None,
        typer.Option(
            help="`ray` trains on a Ray cluster; if none is running, it starts one on this machine."
        ),
    ] = None,
    out: Out = Path("reproduction"),
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Run the experiments behind the paper's tables, and show them beside its figures.

    Cells that are done are not run again, stopped ones are resumed, and cells with the same model
    share its training. Without a table, shows the state of all tables.

    Examples:

        alfa reproduce

        alfa reproduce table1 --dataset miniimagenet --shots 5 --rows alfa+maml --list

        alfa reproduce table8 --seeds 3 --dry-run

        alfa reproduce --all --quick

        alfa reproduce table8 --jobs 2
    """
    from alfa.cli._reproduce_output import print_cells, print_costs, print_tables
    from alfa.cli.progress import meter
    from alfa.cli.start import check_device
    from alfa.errors import ConfigError, check_choice
    from alfa.paper import TABLES, estimate, plan_jobs, select

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
        plan = partial(plan_jobs, out=out, num_seeds=seeds, num_iterations=iterations, quick=quick)
        planned = {name: plan(table.cells) for name, table in TABLES.items()}
        print_tables(planned, out, as_json=as_json)
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
        # Workers have other working directories.
        out = out.resolve()
    names = list(TABLES) if everything else _table_names(tables or [])
    cells = select([TABLES[name] for name in names], wanted)
    if on is None:
        # Workers of a cluster check their own devices.
        check_device(device)
    jobs = plan_jobs(
        cells, out, num_seeds=seeds, num_iterations=_whole_epochs(iterations), quick=quick
    )
    if only_list:
        print_cells(cells, jobs, as_json=as_json)
    elif dry_run:
        with meter("measuring", quiet=as_json) as shown:
            costs = estimate(
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
            typer.echo(f"alfa: {name} is being run by another process.", err=True)
        raise typer.Exit(1 if results.failed else 0)


def _table_names(tables: list[str]) -> list[str]:
    from alfa.errors import check_choice
    from alfa.paper import TABLES

    known = {name.lower(): name for name in TABLES}
    for name in tables:
        check_choice("TABLES", name.lower(), known)
    return list(dict.fromkeys(known[name.lower()] for name in tables))


def _whole_epochs(iterations: int | None) -> int | None:
    """Round up to whole epochs, so that a run can be trained further as if it never stopped."""
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
    jobs: Sequence[Job],
    out: Path,
    *,
    count: int | None,
    device: str,
    threads: int | None,
    quiet: bool,
) -> JobResult:
    """Run jobs on this machine, `count` at once, or on a Ray cluster if it is None."""
    from alfa.cli.progress import meter, show_training
    from alfa.cli.stopping import stoppable
    from alfa.paper import reproduce as run_jobs
    from alfa.paper import run_parallel

    num_ended = 0
    with stoppable(quiet=quiet) as stop_request:
        try:
            with meter("reproduce", quiet=quiet) as shown:
                shows = {job.name: show_training(shown, job.name, transient=True) for job in jobs}

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

                run = (
                    partial(run_jobs, jobs, device=device)
                    if count == 1
                    else partial(run_parallel, jobs, _workers(count, out, device, threads))
                )
                return run(
                    before=before, after=after, should_stop=stop_request, on_progress=on_progress
                )
        except KeyboardInterrupt:
            stop_request.report("the same command goes on from here")
            raise typer.Exit(stop_request.exit_code) from None


def _workers(count: int | None, out: Path, device: str, threads: int | None) -> Workers:
    from alfa.paper import LocalWorkers, RayWorkers

    if count is not None:
        before = partial(_set_up, device, threads, share=count)
        return LocalWorkers(count, device=device, before=before)
    threads = threads or 1
    return RayWorkers(
        device=device,
        threads=threads,
        before=partial(_set_up, device, threads),
        out=out,
        address=os.environ.get("RAY_ADDRESS"),
    )


def _set_up(device: str, threads: int | None, job: Job, *, share: int = 1) -> None:
    from alfa.cli.start import set_up

    set_up(job.experiment, device=device, threads=threads, share=share)
