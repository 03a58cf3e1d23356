"""Measured figures beside the published ones."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from alfa.errors import CheckpointError
from alfa.paper._cell_status import Measurement, measure
from alfa.paper._collect import Collection, FoundRun
from alfa.paper._table import Cell, Entry, Quoted, Table
from alfa.report.tables import Box, Grid, Row, Verdict

# Tables whose plus-minus is an interval of the mean, as the paper states, or may be one. In other
# tables it is the standard deviation of a single answer.
_STATED_INTERVALS = ("table8",)
_INTERVALS = ("table2", "table3", *_STATED_INTERVALS)


def comparison_grid(table: Table, collection: Collection, *, links_from: Path) -> Grid:
    """Combine a table with the measured figures; links to run folders start at `links_from`."""

    def box(row: str, column: str) -> Box:
        entry = table.entries.get((row, column))
        return Box() if entry is None else _box(entry, collection, links_from)

    cells = [entry for entry in table.entries.values() if isinstance(entry, Cell)]
    note = "All models start from one backbone, pretrained as a classifier of the training classes."
    return Grid(
        name=table.name,
        label=table.label,
        title=table.title,
        about=table.about,
        columns=tuple((column.group, column.title) for column in table.columns),
        rows=tuple(
            Row(row.group, row.title, tuple(box(row.key, column.key) for column in table.columns))
            for row in table.rows
        ),
        notes=(note,) if any(cell.pretrained for cell in cells) else (),
        plus_minus=_plus_minus(cells),
    )


def _plus_minus(cells: Sequence[Cell]) -> str:
    """Explain the plus-minus of the authors' own figures, if they have one."""
    # The plus-minus of a repeated cell is explained as in the cell's own table.
    tables = {c.table for c in cells if c.published.spread is not None and not c.quoted}
    if not tables:
        return ""
    if not tables <= {*_INTERVALS}:
        return (
            "In the authors' own rows, the paper's plus-minus is not an interval of the mean: "
            "70.00 +- 0.46 in Table 1 is the accuracy with the standard deviation of a single "
            "answer, the square root of p (1 - p), as a fraction, although the supplement calls it "
            "the standard deviation of three seeds."
        )
    if tables <= {*_STATED_INTERVALS}:
        return "The paper's plus-minus is a 95 % confidence interval."
    return (
        "The paper's supplement calls its plus-minus the standard deviation of three seeds; here "
        "it is treated as half of the 95 % interval of the mean."
    )


def _box(entry: Entry, collection: Collection, links_from: Path) -> Box:
    published = "" if entry.published is None else entry.published.text
    if isinstance(entry, Quoted):
        return Box(published, is_quoted=True)
    found = _measurements(entry, collection)
    if not found:
        return Box(published, is_quoted=entry.quoted)
    link = relative_link(found[0].path, links_from)
    if found[0].is_quick:
        return Box(published, "quick", "quick", is_quoted=entry.quoted, link=link)
    longest = max(x.num_iterations for x in found)
    # The mean is over the seeds with the longest training.
    counted = [x for x in found if x.num_iterations == longest]
    value = sum(x.value for x in counted) / len(counted)
    intervals = [x.interval for x in counted if x.interval is not None]
    # Half of the 95 % interval over the tasks of all seeds.
    interval = math.hypot(*intervals) / len(counted) if len(intervals) == len(counted) else None
    digits = 2 if entry.metric == "accuracy" else 3
    notes = []
    if len(counted) > 1:
        notes.append(f"seeds {', '.join(f'{seed.value:.{digits}f}' for seed in counted)}")
    if len(counted) < len(found):
        notes.append(f"{len(found) - len(counted)} shorter seeds omitted")
    notes += _missing_tests(entry, counted)
    verdict = verdict_of(entry, value, interval)
    wanted = entry.experiment.outer.num_iterations
    if counted[0].trains and longest != wanted:
        relation = "of" if longest < wanted else "instead of"
        notes.append(f"{longest:,} {relation} {wanted:,} iterations")
        verdict = "shorter" if longest < wanted else verdict
    text = f"{value:.{digits}f}" + ("" if interval is None else f" +- {interval:.{digits}f}")
    return Box(published, text, verdict, tuple(notes), entry.quoted, link)


def _missing_tests(cell: Cell, found: Sequence[Measurement]) -> list[str]:
    """Describe tests with fewer tasks or models than the cell's."""
    test = cell.experiment.test
    num_tasks = min(x.num_tasks for x in found)
    notes = [f"{num_tasks} of {test.num_tasks} test tasks"] if num_tasks < test.num_tasks else []
    num_models = min(x.num_models for x in found)
    # Without training, all models of an ensemble are equal.
    if found[0].trains and num_models < test.ensemble:
        notes.append(f"{num_models} of {test.ensemble} models")
    return notes


def relative_link(path: Path, start: Path) -> str:
    """Return the address of a folder relative to another one."""
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:
        # Windows has no relative paths between drives.
        return path.as_uri()


def _measurements(cell: Cell, collection: Collection) -> list[Measurement]:
    """Return the measurements of a cell, one per seed.

    If runs share a seed, the one with the most iterations counts, then the most test tasks, the
    most models, and the newest.
    """
    by_seed: dict[int, tuple[tuple[int, int, int, float], Measurement]] = {}
    for run in collection.runs_of(cell.run):
        try:
            found = measure(cell, run.result, path=run.path, is_quick=run.is_quick)
        except CheckpointError as error:
            collection.add_problem(str(error))
            continue
        if found is None:
            continue
        time = (run.path / "result.json").stat().st_mtime
        rank = (found.num_iterations, found.num_tasks, found.num_models, time)
        if found.seed not in by_seed or rank > by_seed[found.seed][0]:
            by_seed[found.seed] = rank, found
    return [by_seed[seed][1] for seed in sorted(by_seed)]


def verdict_of(cell: Cell, value: float, interval: float | None) -> Verdict:
    """Compare a figure with the paper's: within, above, or below.

    Both are means over tasks, and the choice of tasks explains a difference of up to the root of
    the sum of the squares of both intervals. If the paper gives no interval of the mean, it is
    assumed to be as wide as ours. The variation between seeds is not considered.
    """
    if interval is None or not math.isfinite(value):
        return ""
    theirs = interval
    if (cell.table in _INTERVALS or cell.quoted) and cell.published.spread is not None:
        theirs = cell.published.spread
    difference = value - cell.published.value
    if abs(difference) <= math.hypot(interval, theirs):
        return "within"
    return "above" if difference > 0 else "below"


def runs_with_curves(table: Table, collection: Collection) -> list[FoundRun]:
    """Return the runs whose learning curves belong to a table."""
    models = dict.fromkeys(cell.run for cell in table.cells)
    runs = [run for model in models for run in collection.runs_of(model)]
    return [run for run in runs if len(run.metrics) > 1 and not run.is_quick]
