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
    from alfa.report.paper_page import RunLine
    from alfa.report.tables import Grid

FORMATS = (".html", ".md", ".csv", ".tex")


def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders that hold some; by default `reproduction`."),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="A file ending in .html, .md, .csv or .tex; several for several."),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; by default those with a run.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All tables, also those that nothing was run for.")
    ] = False,
) -> None:
    """Show what was measured beside the paper's figures, in one file.

    Examples:

        alfa report

        alfa report runs/cifar-fs-alfa runs/cifar-fs-maml --out cifar.html

        alfa report reproduction --table table1 --out table1.tex --out table1.csv
    """
    from alfa.errors import ConfigError, DataError, check_choice
    from alfa.paper import TABLES, collect, lay_out
    from alfa.train.files import write_atomic

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
    collection = collect(places, TABLES.values())
    if not collection.runs and not everything and not table:
        listed = ", ".join(map(str, places))
        raise DataError(
            f"there is no run that can be read under {listed}; run `alfa reproduce` or `alfa "
            "train` first, or show the paper's figures alone with --all."
        )
    options = [*(word for name in table or [] for word in ("--table", name))]
    options += ["--all"] if everything else []
    contents: dict[Path, str] = {}
    for path in outputs:
        grids = [
            lay_out(found, collection, links_from=path.resolve().parent)
            for name, found in TABLES.items()
            if not table or name.lower() in map(str.lower, table)
        ]
        if not everything and not table:
            grids = [grid for grid in grids if grid.num_measured or grid.num_quick]
        if not grids and path.suffix != ".html":
            raise DataError(
                f"none of the runs under {', '.join(map(str, places))} is complete and belongs to "
                f"a table of the paper, so that there is no table to write to {path}; write a page "
                "(--out report.html), which lists all runs, or show the paper's own with --all."
            )
        command = shlex.join(["alfa", "report", *map(str, places), *options, "--out", str(path)])
        contents[path] = _content(grids, collection, path, command)
    for path, content in contents.items():
        write_atomic(path, content.encode("utf-8", "backslashreplace"))
        typer.echo(f"written: {path}")
    for problem in collection.problems:
        typer.echo(f"alfa: cannot be read: {problem}", err=True)


def _content(grids: Sequence[Grid], collection: Collection, path: Path, command: str) -> str:
    """The file, in the format that its name asks for."""
    from alfa.report.tables import comma_separated, latex, markdown

    match path.suffix:
        case ".md":
            return "\n".join(markdown(grid) for grid in grids)
        case ".csv":
            return comma_separated(grids)
        case ".tex":
            return "\n".join(latex(grid) for grid in grids)
        case _:
            return _page(grids, collection, path, command)


def _page(grids: Sequence[Grid], collection: Collection, path: Path, command: str) -> str:
    from alfa.paper import TABLES, link
    from alfa.report.paper_page import render

    curves = {grid.name: _curves(TABLES[grid.name], collection) for grid in grids}
    start = path.resolve().parent
    runs = [_line(run, link(run.path, start)) for run in collection.runs]
    return render(grids, curves=curves, runs=runs, problems=collection.problems, command=command)


def _curves(table: Table, collection: Collection) -> Markup:
    """The learning curves of a table, a figure for each kind of tasks."""
    from markupsafe import Markup

    from alfa.paper import curves_of
    from alfa.report.curves import Curve, draw
    from alfa.report.learning import METRICS, by_metric

    kinds: dict[tuple[str, str], list[Curve]] = {}
    for run in curves_of(table, collection):
        found = by_metric(run.metrics)
        if not found:
            continue
        metric = next(iter(found))
        tasks, _, title = str(run.serves).partition("/")
        lines = kinds.setdefault((tasks, metric), [])
        label = f"{title}, seed {run.experiment.seed}"
        if label in (line.title for line in lines):
            label += f" ({run.path.name})"
        lines.append(Curve(label, found[metric]))
    figures = (
        draw(
            lines,
            x_title="outer iterations",
            y_title=f"{tasks}: {METRICS[metric].title}",
            explodes=METRICS[metric].explodes,
        )
        for (tasks, metric), lines in kinds.items()
    )
    return Markup().join(figures)


def _line(run: FoundRun, link: str) -> RunLine:
    from alfa.report.paper_page import RunLine

    title = run.serves or run.path.name
    seed = run.experiment.seed
    if run.result is None:
        done = run.metrics[-1]["iteration"] if run.metrics else 0
        return RunLine(title, link, seed, done, 0.0, "-", 0, "not complete")
    test = run.result.get("ensemble", run.result["test"])
    if run.is_quick:
        figure, note = "-", "quick, no result"
    elif test.get("accuracy") is not None:
        figure, note = _figure(test["accuracy"], test["accuracy_interval"], scale=100), ""
    else:
        # As in the tables.
        figure, note = _figure(test["loss"], test["interval"], digits=3), ""
    return RunLine(
        title,
        link,
        seed,
        run.result["num_iterations"],
        run.result["seconds"],
        figure,
        test["num_tasks"],
        note,
    )


def _figure(value: float, interval: float | None, *, scale: float = 1.0, digits: int = 2) -> str:
    spread = "" if interval is None else f" +- {scale * interval:.{digits}f}"
    return f"{scale * value:.{digits}f}{spread}"
