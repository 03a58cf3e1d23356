"""Groups of runs that differ only in their seed, as `alfa train --seeds` creates them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alfa.cli import lazy
from alfa.cli.progress import meter, show_testing
from alfa.cli.start import Computing
from alfa.errors import DivergedError

OnTasks = Callable[[int, int], None]


@dataclass(frozen=True)
class Group:
    """Runs of several seeds, or a single run, and their evaluations on the same tasks."""

    path: Path
    runs: Sequence[lazy.runs.Run]
    evaluations: Sequence[lazy.evaluation.Evaluation] = ()

    @classmethod
    def open(cls, path: Path) -> Group:
        """Open a run, or all runs of a group."""
        exists = {folder: lazy.runs.RunFiles(folder).exists for folder in path.glob("seed-*")}
        folders = sorted((folder for folder in exists if exists[folder]), key=_seed)
        if lazy.runs.RunFiles(path).exists or not folders:
            folders = [path]
        return cls(path, [lazy.runs.Run.open(folder) for folder in folders])

    def evaluate(
        self,
        evaluate: Callable[[lazy.runs.Run, OnTasks], lazy.evaluation.Evaluation],
        computing: Computing,
        *,
        tasks: str = "",
    ) -> Group:
        """Return the group with evaluations, and show the progress; `tasks` names the tasks."""
        evaluations = []
        for run in self.runs:
            computing.set_up(run.experiment)
            with meter(f"{run.path.name}{tasks}", quiet=computing.as_json) as shown:
                try:
                    evaluations.append(evaluate(run, show_testing(shown)))
                except DivergedError as error:
                    raise DivergedError(f"{run.path}: {error}") from None
        return Group(self.path, self.runs, evaluations)

    @property
    def has_seeds(self) -> bool:
        return len(self.runs) > 1

    @cached_property
    def mean(self) -> lazy.evaluation.Evaluation:
        """The mean over the runs, with the interval over tasks."""
        return lazy.evaluation.mean_over_seeds(self.evaluations)

    @cached_property
    def figures(self) -> list[float]:
        """The accuracy of each run, or the loss for regression."""
        return [each.loss if each.accuracy is None else each.accuracy for each in self.evaluations]

    @cached_property
    def seeds(self) -> lazy.evaluation.SeedStatistics:
        return lazy.evaluation.seed_statistics(self.figures)


def _seed(folder: Path) -> tuple[int, str]:
    number = re.fullmatch(r"seed-(\d+)", folder.name)
    return int(number[1]) if number else -1, folder.name
