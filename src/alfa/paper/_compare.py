"""Runs found in folders, and their figures beside the published ones."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from alfa.config import Experiment
from alfa.errors import AlfaError, CheckpointError
from alfa.paper._cell_status import Measurement, measure
from alfa.paper._job import RESULT_KEY, on_strokes
from alfa.paper._table import Cell, Entry, Quoted, Table
from alfa.report.tables import Box, Grid, Row, Verdict
from alfa.runs import Run


@dataclass(frozen=True)
class FoundRun:
    """A run read from its folder."""

    path: Path
    experiment: Experiment
    metrics: Sequence[dict[str, Any]]  # one record per validation
    result: dict[str, Any] | None  # the content of result.json; None while the run is trained
    model: str | None  # the paper's name of the model; None if the paper does not have it
    is_quick: bool  # the run only checks that everything works


@dataclass
class Collection:
    """All runs below some folders, and an error message for each unreadable file or folder."""

    runs: list[FoundRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def runs_of(self, model: str) -> list[FoundRun]:
        """Return the complete runs of a model; quick runs only if there are no others."""
        complete = [x for x in self.runs if x.result is not None]
        real = [x for x in complete if x.model == model and not x.is_quick]
        return real or [x for x in complete if x.model in (model, on_strokes(model)) and x.is_quick]

    def runs_with_curves(self, table: Table) -> list[FoundRun]:
        """Return the runs whose learning curves belong to a table."""
        models = dict.fromkeys(cell.run for cell in table.cells)
        runs = [run for model in models for run in self.runs_of(model)]
        return [run for run in runs if len(run.metrics) > 1 and not run.is_quick]


def collect(folders: Iterable[Path], tables: Iterable[Table]) -> Collection:
    """Read all runs at any depth below some folders, and match them with the cells of tables."""
    experiments = {cell.run: cell.experiment for table in tables for cell in table.cells}

    @lru_cache
    def models(seed: int) -> dict[str, str]:
        """Return the names of the paper's models by their fingerprints with a seed."""
        return {
            experiment.model_copy(update={"seed": seed}).fingerprint(): name
            for name, experiment in experiments.items()
        }

    collection = Collection()
    for path in dict.fromkeys(p.resolve() for folder in folders for p in _run_folders(folder)):
        try:
            run = Run(path)
            model = models(run.experiment.seed).get(run.experiment.fingerprint())
            collection.runs.append(_read(run, model, collection))
        except (AlfaError, OSError) as error:
            collection.problems.append(f"{path}: {' '.join(str(error).split())}")
    return collection


def _run_folders(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        # Other programs also use the name config.toml.
        if "config.toml" in files and ("metrics.jsonl" in files or "checkpoints" in folders):
            folders.clear()
            yield Path(path)


def _read(run: Run, model: str | None, collection: Collection) -> FoundRun:
    is_quick, mark = False, (run.result or {}).get(RESULT_KEY)
    match mark:
        case None | {"run": str(), "is_quick": False}:
            pass
        case {"run": str(name), "is_quick": True}:
            model, is_quick = name, True
        case _:
            collection.add_problem(
                f"{run.files.result} is damaged: it does not state whether the run is quick; "
                "copy the folder again, or run the cell again."
            )
            # Without a mark, only a model of the paper is certainly not quick.
            is_quick = model is None
    return FoundRun(run.path, run.experiment, run.metrics, run.result, model, is_quick)


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
            Row(
                row.group,
                row.title,
                tuple(box(row.key, column.key) for column in table.columns),
                row.footnotes,
            )
            for row in table.rows
        ),
        notes=(note,) if any(cell.pretrained for cell in cells) else (),
        plus_minus=table.plus_minus,
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
    found = []
    for run in collection.runs_of(cell.run):
        try:
            found.append(measure(cell, run.result, path=run.path, is_quick=run.is_quick))
        except CheckpointError as error:
            collection.add_problem(str(error))

    def rank(x: Measurement) -> tuple[int, int, int, float]:
        time = (x.path / "result.json").stat().st_mtime
        return x.num_iterations, x.num_tasks, x.num_models, time

    # Of the measurements of a seed, the dictionary keeps the last.
    by_seed = {x.seed: x for x in sorted(filter(None, found), key=rank)}
    return [by_seed[seed] for seed in sorted(by_seed)]


def verdict_of(cell: Cell, value: float, interval: float | None) -> Verdict:
    """Compare a figure with the paper's: within, above, or below.

    Both are means over tasks, and the choice of tasks explains a difference of up to the root of
    the sum of the squares of both intervals. If the paper gives no interval of the mean, it is
    assumed to be as wide as ours. The variation between seeds is not considered.
    """
    if interval is None or not math.isfinite(value):
        return ""
    theirs = interval
    if (cell.published.is_interval or cell.quoted) and cell.published.spread is not None:
        theirs = cell.published.spread
    difference = value - cell.published.value
    if abs(difference) <= math.hypot(interval, theirs):
        return "within"
    return "above" if difference > 0 else "below"
