"""Measured figures beside the published ones."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from alfa.paper._base import Cell, Entry, Quoted, Table
from alfa.paper._collect import Collection, FoundRun
from alfa.paper._state import Measured, measure
from alfa.report.tables import Box, Grid, Row, Verdict

# Whose plus-minus is an interval of the mean; elsewhere it is the spread of a single answer.
_WITH_INTERVALS = ("table3", "table8")


def lay_out(table: Table, collection: Collection, *, links_from: Path) -> Grid:
    """A table as in the paper, with what was measured.

    Args:
        table: of the paper.
        collection: the runs.
        links_from: the folder that links to run folders start from.
    """

    def box(row: str, column: str) -> Box:
        entry = table.entries.get((row, column))
        return Box() if entry is None else _box(entry, collection, links_from)

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
        notes=_notes(table),
    )


def _notes(table: Table) -> tuple[str, ...]:
    missing = dict.fromkeys(cell.missing for cell in table.cells if cell.missing)
    return tuple(f"Its cells cannot be run yet: they need {parts}." for parts in missing)


def _box(entry: Entry, collection: Collection, links_from: Path) -> Box:
    published = "" if entry.published is None else entry.published.text
    if isinstance(entry, Quoted):
        return Box(published, is_quoted=True)
    if entry.missing:
        return Box(published)
    found = of_cell(entry, collection)
    if not found:
        return Box(published, is_quoted=entry.quoted)
    link = os.path.relpath(found[0].path, links_from)
    if found[0].is_quick:
        return Box(published, "quick", "quick", is_quoted=entry.quoted, link=link)
    value, interval = mean_over_seeds(found)
    notes = []
    digits = 2 if entry.metric == "accuracy" else 3
    if len(found) > 1:
        notes.append(f"seeds {', '.join(f'{seed.value:.{digits}f}' for seed in found)}")
    wanted = entry.experiment.outer.num_iterations
    done = min(seed.num_iterations for seed in found)
    verdict = compare(entry, value, interval)
    if trained_for_less(found, wanted):
        notes.append(f"{done:,} of {wanted:,} iterations")
        verdict = "shorter"
    spread = "" if interval is None else f" +- {interval:.{digits}f}"
    return Box(published, f"{value:.{digits}f}{spread}", verdict, tuple(notes), entry.quoted, link)


def of_cell(cell: Cell, collection: Collection) -> list[Measured]:
    """What was measured for a cell, one for each seed."""
    by_seed: dict[int, Measured] = {}
    for run in collection.serving(cell.run):
        test = run.test_for(cell)
        if test is not None and run.result is not None:
            found = measure(cell, run.result, test, path=run.path, is_quick=run.is_quick)
            best = by_seed.get(found.seed)
            # Of two runs of one seed, the one that was trained for longer counts.
            if best is None or found.num_iterations > best.num_iterations:
                by_seed[found.seed] = found
    return [by_seed[seed] for seed in sorted(by_seed)]


def trained_for_less(found: Sequence[Measured], num_iterations: int) -> bool:
    """Whether a training ended before so many iterations, if there was one."""
    return any(x.trains and x.num_iterations < num_iterations for x in found)


def mean_over_seeds(found: Sequence[Measured]) -> tuple[float, float | None]:
    """The mean, and half of its 95 % interval over the tasks of all seeds."""
    value = sum(x.value for x in found) / len(found)
    intervals = [x.interval for x in found if x.interval is not None]
    if len(intervals) < len(found):
        return value, None
    return value, math.hypot(*intervals) / len(found)


def compare(cell: Cell, value: float, interval: float | None) -> Verdict:
    """Whether a figure is within, above or below what the paper has, for better or worse.

    Both are means over tasks. Their difference is within chance if it is smaller than both
    intervals together; where the paper gives no interval of the mean, it is taken to be as wide as
    ours.
    """
    if interval is None:
        return ""
    theirs = interval
    if (cell.table in _WITH_INTERVALS or cell.quoted) and cell.published.spread is not None:
        theirs = cell.published.spread
    difference = value - cell.published.value
    if abs(difference) <= math.hypot(interval, theirs):
        return "within"
    return "above" if difference > 0 else "below"


def curves_of(table: Table, collection: Collection) -> list[FoundRun]:
    """The runs whose learning curves belong to a table, each of them once."""
    names = dict.fromkeys(cell.run for cell in table.cells)
    runs = [run for name in names for run in collection.serving(name)]
    return [run for run in runs if len(run.metrics) > 1 and not run.is_quick]
