"""Run folders on disk, and the paper's models that they contain."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from alfa.config import Experiment
from alfa.errors import AlfaError
from alfa.paper._job import RESULT_KEY, on_strokes
from alfa.paper._table import Table
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
