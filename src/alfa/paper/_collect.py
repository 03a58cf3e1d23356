"""Run folders, and the cells of the paper that they measure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from alfa.config import Experiment
from alfa.errors import AlfaError
from alfa.paper._base import Cell, Table
from alfa.paper._job import MARK, MARK_IN_RESULT, on_strokes
from alfa.train import Run
from alfa.train.files import read_json


@dataclass(frozen=True)
class FoundRun:
    """A run folder that was read.

    Attributes:
        path: the folder.
        experiment: that was run.
        metrics: one record per validation.
        result: the test; None while it is being trained.
        serves: the model of the paper that it is, by name; None if it is none.
        is_quick: it shows that everything runs, and measures nothing.
    """

    path: Path
    experiment: Experiment
    metrics: Sequence[dict[str, Any]]
    result: dict[str, Any] | None
    serves: str | None
    is_quick: bool


@dataclass
class Collection:
    """Runs, and what was wrong with others.

    Attributes:
        runs: that could be read.
        problems: a sentence for each folder that could not.
    """

    runs: list[FoundRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        """Keep what was found to be wrong later, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def serving(self, run: str) -> list[FoundRun]:
        """The runs of a model of the paper that are complete, quick ones only if all are."""
        complete = [x for x in self.runs if x.result is not None]
        real = [x for x in complete if x.serves == run and not x.is_quick]
        return real or [x for x in complete if x.serves in (run, on_strokes(run)) and x.is_quick]


def collect(folders: Iterable[Path], tables: Iterable[Table]) -> Collection:
    """Read all runs in some folders.

    Args:
        folders: run folders, or folders that hold some, at any depth.
        tables: whose cells the runs may measure.
    """
    names = _Names([cell for table in tables for cell in table.cells])
    collection = Collection()
    for path in dict.fromkeys(p.resolve() for folder in folders for p in _run_folders(folder)):
        try:
            collection.runs.append(_read(path, names, collection))
        except (AlfaError, OSError) as error:
            collection.problems.append(f"{path}: {' '.join(str(error).split())}")
    return collection


def _run_folders(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        # A folder that holds runs may have a file of this name that is another program's.
        if "config.toml" in files and ("metrics.jsonl" in files or "checkpoints" in folders):
            folders.clear()
            yield Path(path)


def _read(path: Path, names: _Names, collection: Collection) -> FoundRun:
    run = Run(path)
    experiment, result = run.experiment(), run.read_result()
    serves, marks = names.of(experiment), _marks(run, result, collection)
    quick = [mark for mark in marks if mark and mark["is_quick"]]
    if quick:
        serves = quick[0]["run"]
    # Where all are damaged it cannot be told, and what may be quick is not shown as a result; an
    # experiment of the paper is no quick one.
    is_lost = bool(marks) and not any(marks) and serves is None
    return FoundRun(
        path=path,
        experiment=experiment,
        metrics=run.read_metrics(),
        result=result,
        serves=serves,
        is_quick=bool(quick) or is_lost,
    )


def _marks(
    run: Run, result: dict[str, Any] | None, collection: Collection
) -> list[dict[str, Any] | None]:
    """What `alfa reproduce` has said of a run, in two places; None for what is damaged."""
    found = {
        run.path / MARK: read_json(run.path / MARK),
        # Older ones do not have it.
        run.result: (result or {}).get(MARK_IN_RESULT),
    }
    marks: list[dict[str, Any] | None] = []
    for file, mark in found.items():
        if mark is None:
            continue
        is_whole = _is_mark(mark)
        marks.append(mark if is_whole else None)
        if not is_whole:
            collection.note(
                f"{file} is damaged: it does not say whether the run is quick; copy the folder "
                "anew, or run the cell again."
            )
    return marks


def _is_mark(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    return isinstance(content.get("run"), str) and isinstance(content.get("is_quick"), bool)


class _Names:
    """Which model of the paper an experiment trains, whatever its seed."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._experiments = {cell.run: cell.experiment for cell in cells}
        self._by_seed = lru_cache(self._fingerprints)

    def of(self, experiment: Experiment) -> str | None:
        return self._by_seed(experiment.seed).get(experiment.fingerprint())

    def _fingerprints(self, seed: int) -> dict[str, str]:
        return {
            experiment.model_copy(update={"seed": seed}).fingerprint(): name
            for name, experiment in self._experiments.items()
        }
