"""Groups of runs that differ in their seed only, as `alfa train --seeds` makes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alfa.cli.progress import meter, show_testing
from alfa.cli.start import set_up
from alfa.errors import DivergedError
from alfa.evaluation import Evaluation, SeedStatistics, mean_over_seeds, seed_statistics
from alfa.runs import Run, RunFiles

OnTasks = Callable[[int, int], None]


def seed_folder(path: Path, seed: int) -> Path:
    """The run folder of one seed in the folder of a group."""
    return path / f"seed-{seed}"


def open_group(path: Path) -> list[Run]:
    """Open a run, or all runs of a group."""
    folders = [folder for folder in path.glob("seed-*") if RunFiles(folder).exists]
    if RunFiles(path).exists or not folders:
        return [Run.open(path)]
    return [Run.open(folder) for folder in sorted(folders, key=_by_seed)]


def _by_seed(folder: Path) -> tuple[int, str]:
    number = re.fullmatch(r"seed-(\d+)", folder.name)
    return int(number[1]) if number else -1, folder.name


@dataclass(frozen=True)
class Group:
    """Runs and their evaluations on the same tasks; often a single run."""

    path: Path
    runs: Sequence[Run]
    evaluations: Sequence[Evaluation]

    @cached_property
    def mean(self) -> Evaluation:
        """The mean over the runs, with the interval over tasks."""
        return mean_over_seeds(self.evaluations)

    @cached_property
    def figures(self) -> list[float]:
        """The accuracy of each run, or the loss for regression."""
        return [one.loss if one.accuracy is None else one.accuracy for one in self.evaluations]

    @cached_property
    def seeds(self) -> SeedStatistics:
        return seed_statistics(self.figures)


def evaluate_group(
    path: Path,
    runs: Sequence[Run],
    evaluate: Callable[[Run, OnTasks], Evaluation],
    *,
    where: str = "",
    device: str,
    threads: int | None,
    quiet: bool,
) -> Group:
    """Evaluate the runs of a group, and show the progress; `where` describes the tasks."""
    found = []
    for run in runs:
        set_up(run.experiment, device=device, threads=threads)
        with meter(f"{run.path.name}{where}", quiet=quiet) as shown:
            try:
                found.append(evaluate(run, show_testing(shown)))
            except DivergedError as error:
                raise DivergedError(f"{run.path}: {error}") from None
    return Group(path, runs, found)
