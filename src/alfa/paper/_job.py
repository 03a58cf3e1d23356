"""What must be trained and tested for cells of the paper, and where it is kept."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.config import Experiment, parse_experiment
from alfa.data import prepared
from alfa.paper._base import Cell

# In a run folder, the model of the paper that it is.
MARK = "paper.json"
# The smallest side that four times 2 x 2 pooling leaves something of.
_QUICK_SIZE = 16


@dataclass(frozen=True)
class Job:
    """One model to train, from one seed, and the cells that are measured with it.

    Attributes:
        run: the model's name.
        path: its run folder.
        experiment: that trains it.
        cells: that it serves.
        is_quick: it shows that everything runs, and measures nothing.
    """

    run: str
    path: Path
    experiment: Experiment
    cells: tuple[Cell, ...]
    is_quick: bool

    @property
    def name(self) -> str:
        """Of the run, with its seed."""
        return f"{self.run}/{self.path.name}"

    def judged_on(self, cell: Cell) -> str | None:
        """The dataset whose tasks test the model for a cell, if not its own."""
        if cell.judged_on is None or not self.is_quick:
            return cell.judged_on
        return _at_hand(cell.judged_on)

    def test_file(self, cell: Cell) -> Path | None:
        """Where the test on another dataset is kept."""
        if cell.judged_on is None:
            return None
        return self.path / "tests" / f"{cell.judged_on}.json"


def plan_jobs(
    cells: Iterable[Cell],
    out: Path,
    *,
    num_seeds: int = 1,
    num_iterations: int | None = None,
    quick: bool = False,
) -> list[Job]:
    """The models that cells need, each of them once.

    Args:
        cells: of any tables; those that cannot be run are passed over.
        out: where run folders go.
        num_seeds: how many times each is trained, from the seeds 0, 1, ...
        num_iterations: to train for, where not as long as the paper.
        quick: seconds each, to see that everything runs.
    """
    served: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell.missing:
            served.setdefault(cell.run, []).append(cell)
    jobs = []
    for seed in range(num_seeds):
        for run, its_cells in served.items():
            experiment = _variant(its_cells[0], seed, num_iterations, quick)
            path = out / ("quick" if quick else "runs") / run / f"seed-{seed}"
            jobs.append(Job(run, path, experiment, tuple(its_cells), quick))
    return jobs


def _variant(cell: Cell, seed: int, num_iterations: int | None, quick: bool) -> Experiment:
    content: dict[str, Any] = {**copy.deepcopy(dict(cell.content)), "seed": seed}
    if quick:
        _make_quick(content)
    if num_iterations is not None:
        content["outer"]["num_iterations"] = num_iterations
    return parse_experiment(content, source=cell.id)


def _make_quick(content: dict[str, Any]) -> None:
    """Fewer and smaller images, fewer tasks and iterations; all else stays as it is."""
    tasks = content["tasks"]
    if tasks["name"] == "images":
        dataset = _at_hand(tasks["dataset"])
        size = {"size": _QUICK_SIZE} if dataset == "strokes" else {"seen_size": _QUICK_SIZE}
        tasks.pop("size")
        tasks.update(dataset=dataset, num_query=1, **size)
    else:
        tasks["num_query"] = 5
    content["outer"] |= {
        "num_iterations": 2,
        "num_tasks": 1,
        "validate_every": 1,
        "num_val_tasks": 2,
    }
    content["test"] = {
        "num_tasks": 2,
        "ensemble": min(2, content.get("test", {}).get("ensemble", 2)),
    }


def _at_hand(dataset: str) -> str:
    return dataset if len(prepared().get(dataset, ())) == 1 else "strokes"


def select(
    cells: Sequence[Cell],
    *,
    datasets: Sequence[str] = (),
    shots: Sequence[int] = (),
    rows: Sequence[str] = (),
    backbones: Sequence[str] = (),
) -> list[Cell]:
    """The cells that are meant; what is not given leaves all.

    Args:
        cells: to choose from.
        datasets: trained or tested on.
        shots: support examples of a class.
        rows: the part of a cell's id that says what is compared, such as ``"alfa+maml"``.
        backbones: such as ``"conv4"``.
    """

    def wanted(cell: Cell) -> bool:
        _, _, row, backbone = cell.id.split("/")
        tasks = cell.content.get("tasks", {})
        return (
            (not datasets or bool(set(datasets) & set(cell.datasets)))
            and (not shots or tasks.get("shot", tasks.get("num_support")) in shots)
            and (not rows or row in rows)
            and (not backbones or backbone in backbones)
        )

    return [cell for cell in cells if wanted(cell)]
