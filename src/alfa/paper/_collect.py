"""Run folders on disk, and the models of the paper that they hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from alfa.config import Experiment
from alfa.errors import AlfaError
from alfa.paper._job import RESULT_KEY, on_strokes
from alfa.paper._table import Cell, Table
from alfa.runs import Run


@dataclass(frozen=True)
class FoundRun:
    """A run folder that was read.

    Attributes:
        path: the folder.
        experiment: the experiment of the run.
        metrics: one record per validation.
        result: the content of ``result.json``; None while the run is trained.
        model: the name of the paper's model that it trained; None if it is not one of them.
        is_quick: the run only checks that everything works.
    """

    path: Path
    experiment: Experiment
    metrics: Sequence[dict[str, Any]]
    result: dict[str, Any] | None
    model: str | None
    is_quick: bool


@dataclass
class Collection:
    """All runs below some folders.

    Attributes:
        runs: the runs that could be read.
        problems: a sentence for each file or folder that could not.
    """

    runs: list[FoundRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def runs_of(self, model: str) -> list[FoundRun]:
        """The complete runs of a model of the paper; quick runs only if there are no others."""
        complete = [x for x in self.runs if x.result is not None]
        real = [x for x in complete if x.model == model and not x.is_quick]
        return real or [x for x in complete if x.model in (model, on_strokes(model)) and x.is_quick]


def collect(folders: Iterable[Path], tables: Iterable[Table]) -> Collection:
    """Read all runs below some folders.

    Args:
        folders: run folders, or folders that contain some at any depth.
        tables: the tables whose cells the runs may measure.
    """
    models = _Models([cell for table in tables for cell in table.cells])
    collection = Collection()
    for path in dict.fromkeys(p.resolve() for folder in folders for p in _run_folders(folder)):
        try:
            collection.runs.append(_read(path, models, collection))
        except (AlfaError, OSError) as error:
            collection.problems.append(f"{path}: {' '.join(str(error).split())}")
    return collection


def _run_folders(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        # Other programs also call a file config.toml.
        if "config.toml" in files and ("metrics.jsonl" in files or "checkpoints" in folders):
            folders.clear()
            yield Path(path)


def _read(path: Path, models: _Models, collection: Collection) -> FoundRun:
    run = Run(path)
    model, is_quick = models.name_of(run.experiment), False
    mark = (run.result or {}).get(RESULT_KEY)
    if isinstance(mark, dict) and _is_valid(mark):
        if mark["is_quick"]:
            model, is_quick = mark["run"], True
    elif mark is not None:
        collection.add_problem(
            f"{run.files.result} is damaged: it does not say whether the run is quick; copy the "
            "folder again, or run the cell again."
        )
        # A run that may be quick is not shown as a result; an experiment of the paper is not quick.
        is_quick = model is None
    return FoundRun(path, run.experiment, run.metrics, run.result, model, is_quick)


def _is_valid(mark: dict[str, Any]) -> bool:
    return isinstance(mark.get("run"), str) and isinstance(mark.get("is_quick"), bool)


class _Models:
    """The names of the paper's models by fingerprint, whatever the seed."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._experiments = {cell.run: cell.experiment for cell in cells}
        self._by_seed = lru_cache(self._fingerprints)

    def name_of(self, experiment: Experiment) -> str | None:
        return self._by_seed(experiment.seed).get(experiment.fingerprint())

    def _fingerprints(self, seed: int) -> dict[str, str]:
        return {
            experiment.model_copy(update={"seed": seed}).fingerprint(): name
            for name, experiment in self._experiments.items()
        }
