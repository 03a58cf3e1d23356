"""`alfa report`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from alfa.paper import Collection, FoundRun, Table
    from alfa.report.tables import Grid
    from alfa.report.tables_page import RunLine

FORMATS = (".html", ".md", ".csv", ".tex")


def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders with runs; by default `reproduction`."),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Ends in .html, .md, .csv or .tex; repeat it for several files."),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; by default those with a run.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All tables, also those without a run.")
    ] = False,
) -> None:
    """Write measured figures beside the paper's into one file.

    Examples:

        alfa report

        alfa report runs/cifar-fs runs/cifar-fs-maml --out cifar.html

        alfa report reproduction --table table1 --out table1.tex --out table1.csv
    """
    from alfa._io import write_atomic
    from alfa.errors import ConfigError, DataError, check_choice
    from alfa.paper import TABLES, collect, comparison_grid

    places = folders or [Path("reproduction")]
    outputs = out or [Path("report.html")]
    for path in outputs:
        if path.suffix not in FORMATS:
            raise ConfigError(f"--out is {path}, but must end in {', '.join(FORMATS)}.")
    for place in places:
        if not place.is_dir():
            raise DataError(f"{place} is not a folder; give run folders, or folders of them.")
    known = {name.lower(): name for name in TABLES}
    for name in table or []:
        check_choice("--table", name.lower(), known)
    names = [known[name.lower()] for name in table or TABLES]
    collection = collect(places, TABLES.values())
    listed = ", ".join(map(str, places))
    if not collection.runs and not everything and not table:
        raise DataError(
            f"there is no run that can be read under {listed}; run `alfa reproduce` or `alfa "
            "train` first, or show the paper's figures alone with --all."
        )
    options = [word for name in table or [] for word in ("--table", name)]
    options += ["--all"] if everything else []
    contents: dict[Path, str] = {}
    for path in outputs:
        grids = [
            comparison_grid(found, collection, links_from=path.resolve().parent)
            for name, found in TABLES.items()
            if name in names
        ]
        if not everything and not table:
            grids = [grid for grid in grids if grid.has_ours]
        if not grids and path.suffix != ".html":
            raise DataError(
                f"none of the runs under {listed} is complete and belongs to a table of the paper, "
                f"so that there is no table to write to {path}; write a page (--out report.html), "
                "which lists all runs, or show the paper's own with --all."
            )
        command = shlex.join(["alfa", "report", *map(str, places), *options, "--out", str(path)])
        contents[path] = _content(grids, collection, path, command)
    for path, content in contents.items():
        write_atomic(path, content.encode("utf-8", "backslashreplace"))
        typer.echo(f"written: {path}")
    for problem in collection.problems:
        typer.echo(f"alfa: cannot be read: {problem}", err=True)


def _content(grids: Sequence[Grid], collection: Collection, path: Path, command: str) -> str:
    """The file, in the format of its suffix."""
    from alfa.paper import TABLES, relative_link
    from alfa.report.tables import grids_csv, latex, markdown
    from alfa.report.tables_page import render_tables_page

    match path.suffix:
        case ".md":
            return "\n".join(map(markdown, grids))
        case ".csv":
            return grids_csv(grids)
        case ".tex":
            return "\n".join(map(latex, grids))
    start = path.resolve().parent
    return render_tables_page(
        grids,
        curves={grid.name: _curves(TABLES[grid.name], collection) for grid in grids},
        runs=[_run_line(run, relative_link(run.path, start)) for run in collection.runs],
        problems=collection.problems,
        command=command,
    )


def _curves(table: Table, collection: Collection) -> Markup:
    """The learning curves of a table, one figure for each kind of tasks."""
    from markupsafe import Markup

    from alfa.paper import runs_with_curves
    from alfa.report.curves import Curve, draw_curves
    from alfa.report.learning import METRICS, by_metric

    figures: dict[tuple[str, str], list[Curve]] = {}
    for run in runs_with_curves(table, collection):
        found = by_metric(run.metrics)
        if not found:
            continue
        metric = next(iter(found))
        tasks, _, title = str(run.model).partition("/")
        curves = figures.setdefault((tasks, metric), [])
        label = f"{title}, seed {run.experiment.seed}"
        if label in (curve.title for curve in curves):
            label += f" ({run.path.name})"
        curves.append(Curve(label, found[metric]))
    return Markup().join(
        draw_curves(
            curves,
            x_title="outer iterations",
            y_title=f"{tasks}: {METRICS[metric].title}",
            explodes=METRICS[metric].explodes,
        )
        for (tasks, metric), curves in figures.items()
    )


def _run_line(run: FoundRun, link: str) -> RunLine:
    from alfa.report.tables_page import RunLine

    title, seed = run.model or run.path.name, run.experiment.seed
    if run.result is None:
        done = run.metrics[-1]["iteration"] if run.metrics else 0
        return RunLine(title, link, seed, done, 0.0, "-", 0, "not complete")
    test = run.result.get("ensemble") or run.result["test"]
    figure, note = "-", "quick, no result"
    if not run.is_quick:
        # With as many digits as in the tables.
        note = ""
        if test["accuracy"] is not None:
            figure = _figure(test["accuracy"], test["accuracy_interval"], scale=100)
        else:
            figure = _figure(test["loss"], test["interval"], digits=3)
    num_iterations, seconds = run.result["num_iterations"], run.result["seconds"]
    return RunLine(title, link, seed, num_iterations, seconds, figure, test["num_tasks"], note)


def _figure(value: float, interval: float | None, *, scale: float = 1.0, digits: int = 2) -> str:
    spread = "" if interval is None else f" +- {scale * interval:.{digits}f}"
    return f"{scale * value:.{digits}f}{spread}"
