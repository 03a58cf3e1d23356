"""`alfa report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from alfa._io import write_atomic
from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.show import result_text
from alfa.errors import DataError

if TYPE_CHECKING:
    from markupsafe import Markup

    from alfa.report.tables import Grid, RunLine


def report(
    folders: Annotated[list[Path] | None, Argument(help="Run folders, or their parents.")] = None,
    out: Annotated[list[Path] | None, Option(help=".html, .md, .csv, or .tex; repeatable.")] = None,
    table: Annotated[list[str] | None, Option(help="Only these tables; repeatable.")] = None,
    everything: Annotated[bool, Option("--all", help="Include tables without runs.")] = False,
) -> None:
    """Write a report of measured results next to the paper's.

    By default, it covers the runs in `reproduction` and the tables to which they belong.

    Examples:

        alfa report
        alfa report runs/cifar-fs runs/cifar-fs-maml --out cifar.html
        alfa report reproduction --table table1 --out table1.tex --out table1.csv
    """
    paper = lazy.paper
    places = folders or [Path("reproduction")]
    outputs = out or [Path("report.html")]
    opts.check_outputs(outputs, (".html", ".md", ".csv", ".tex"))
    for place in places:
        if not place.is_dir():
            raise DataError(f"{place} is not a folder; specify run folders, or folders of runs.")
    names = opts.table_names("--table", table or list(paper.TABLES))
    collection = paper.collect(places, paper.TABLES.values())
    listed = ", ".join(map(str, places))
    if not collection.runs and not everything and not table:
        raise DataError(
            f"{listed} contains no readable run; run `alfa reproduce` or `alfa train` first, or "
            "report the paper's results with --all."
        )
    options = [word for name in table or [] for word in ("--table", name)]
    options += ["--all"] if everything else []
    contents: dict[Path, str] = {}
    for path in outputs:
        grids = [
            paper.comparison_grid(found, collection, links_from=path.resolve().parent)
            for name, found in paper.TABLES.items()
            if name in names
        ]
        if not everything and not table:
            grids = [grid for grid in grids if grid.has_ours]
        if not grids and path.suffix != ".html":
            raise DataError(
                f"{listed} contains no complete run of the paper's tables, so {path} would be "
                "empty; list all runs with --out report.html, or add the paper's with --all."
            )
        command = shlex.join(["alfa", "report", *map(str, places), *options, "--out", str(path)])
        contents[path] = _content(grids, collection, path, command)
    for path, content in contents.items():
        write_atomic(path, content.encode("utf-8", "backslashreplace"))
        typer.echo(f"written: {path}")
    for problem in collection.problems:
        typer.echo(f"alfa: unreadable: {problem}", err=True)


def _content(
    grids: Sequence[Grid], collection: lazy.paper.Collection, path: Path, command: str
) -> str:
    """Render a report in the format of the file's suffix."""
    from alfa.report import tables

    match path.suffix:
        case ".md":
            return "\n".join(map(tables.markdown, grids))
        case ".csv":
            return tables.grids_csv(grids)
        case ".tex":
            return "\n".join(map(tables.latex, grids))
    return tables.render_tables_page(
        grids,
        curves={grid.name: _curves(lazy.paper.TABLES[grid.name], collection) for grid in grids},
        runs=[_run_line(run, path.resolve().parent) for run in collection.runs],
        problems=collection.problems,
        command=command,
    )


def _curves(table: lazy.paper.Table, collection: lazy.paper.Collection) -> Markup:
    """Draw the learning curves of a table, with one figure per kind of task."""
    from markupsafe import Markup

    from alfa.report.learning import METRICS, Curve, by_metric, draw_curves

    figures: dict[tuple[str, str], list[Curve]] = {}
    for run in collection.runs_with_curves(table):
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


def _run_line(run: lazy.paper.FoundRun, start: Path) -> RunLine:
    from alfa.report.tables import RunLine

    link = lazy.paper.relative_link(run.path, start)
    title, seed = run.model or run.path.name, run.experiment.seed
    if run.result is None:
        done = run.metrics[-1]["iteration"] if run.metrics else 0
        return RunLine(title, link, seed, done, 0.0, "-", 0, "not complete")
    test = run.result.get("ensemble") or run.result["test"]
    # The same number of digits as in the tables.
    figure = result_text(test, loss_places=3).removesuffix(" %").removesuffix(" +- ?")
    figure, note = ("-", "quick, no result") if run.is_quick else (figure, "")
    num_iterations, seconds = run.result["num_iterations"], run.result["seconds"]
    return RunLine(title, link, seed, num_iterations, seconds, figure, test["num_tasks"], note)
