"""What must be trained and tested for cells of the paper, and where it is kept."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.config import Experiment, parse_experiment
from alfa.data import prepared
from alfa.paper._base import Cell
from alfa.paper._methods import SIZES
from alfa.train import Run
from alfa.train.pretrain import WEIGHTS, Pretraining

# In a run folder, the model of the paper that it is; hidden, as is what went wrong, so that a
# folder with nothing else counts as empty. What is hidden is easily left behind, so the result
# says the same under a name of its own.
MARK, MARK_IN_RESULT = ".paper.json", "paper"
# The published backbone is a classifier of all training classes; how it was trained is not said.
PRETRAINING = Pretraining(num_epochs=90, batch_size=128, augment=True)
QUICK_PRETRAINING = Pretraining(num_epochs=1, batch_size=4, max_batches=1)
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

    @property
    def pretraining(self) -> Path | None:
        """Where the backbone must be made that training begins with; None if there is none to."""
        weights = self.experiment.model.options.get("weights")
        # A run that has begun has read it.
        if (
            weights is None
            or Path(weights).is_file()
            or Run(self.path).checkpoint("last").is_file()
        ):
            return None
        return Path(weights).parent

    @property
    def mark(self) -> dict[str, Any]:
        """What a run folder says of the model that it is."""
        return {"run": self.run, "is_quick": self.is_quick}

    def judged_on(self, cell: Cell) -> tuple[str, int | None]:
        """The other dataset whose tasks test the model for a cell, and its size."""
        assert cell.judged_on is not None
        size = SIZES[cell.judged_on]
        if self.is_quick and not _is_at_hand(cell.judged_on, size):
            return "strokes", None
        return cell.judged_on, size

    def error_file(self, cell: Cell | None = None) -> Path:
        """Where is kept why training failed, or the test for a cell."""
        name = "training" if cell is None else str(cell.judged_on)
        return self.path / f".{name}.error.txt"


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
        cells: of any tables.
        out: where run folders go.
        num_seeds: how many times each is trained, from the seeds 0, 1, ...
        num_iterations: to train for, where not as long as the paper.
        quick: seconds each, to see that everything runs.
    """
    served: dict[str, list[Cell]] = {}
    for cell in cells:
        run = _quick_name(cell.run, cell) if quick else cell.run
        served.setdefault(run, []).append(cell)
    jobs = []
    for seed in range(num_seeds):
        for run, its_cells in served.items():
            experiment = _variant(its_cells[0], out, seed, num_iterations, quick)
            path = out / ("quick" if quick else "runs") / run / f"seed-{seed}"
            jobs.append(Job(run, path, experiment, tuple(its_cells), quick))
    return jobs


def on_strokes(run: str) -> str:
    """What the quick form of a model is called that is trained on generated characters."""
    return re.sub(r"^[a-z0-9-]+(?=-\d+w\d+s/|-varied/)", "strokes", run)


def _quick_name(name: str, cell: Cell) -> str:
    """Models that differ in their images alone are one where there are none of these."""
    return name if _is_here(cell.content["tasks"]) else on_strokes(name)


def _is_here(tasks: Mapping[str, Any]) -> bool:
    """Whether the images of tasks are prepared, or they need none."""
    if "dataset" not in tasks:
        return True
    return _is_at_hand(tasks["dataset"], tasks.get("stored_size", tasks["size"]))


def _variant(
    cell: Cell, out: Path, seed: int, num_iterations: int | None, quick: bool
) -> Experiment:
    content: dict[str, Any] = {**copy.deepcopy(dict(cell.content)), "seed": seed}
    if cell.pretrained is not None:
        name = _quick_name(cell.pretrained, cell) if quick else cell.pretrained
        folder = out / ("quick" if quick else "runs") / "pretrained" / name
        content["model"]["weights"] = str(folder / WEIGHTS)
    if quick:
        _make_quick(content)
    if num_iterations is not None:
        content["outer"]["num_iterations"] = num_iterations
    return parse_experiment(content, source=cell.id)


def _make_quick(content: dict[str, Any]) -> None:
    """Fewer and smaller images, fewer tasks and iterations; all else stays as it is."""
    tasks = content["tasks"]
    if tasks["name"] == "images":
        if _is_at_hand(tasks["dataset"], tasks["size"]):
            tasks["seen_size"] = _QUICK_SIZE
        else:
            tasks |= {"dataset": "strokes", "size": _QUICK_SIZE}
        tasks["num_query"] = 1
    elif tasks["name"] == "meta-dataset":
        if not _is_here(tasks):
            tasks |= {"dataset": "strokes", "stored_size": _QUICK_SIZE}
        # As few images as there can be: one of every class to learn from, and one to judge on.
        tasks |= {"size": _QUICK_SIZE, "max_query": 1, "max_support": tasks.get("max_way", 50)}
    else:
        tasks["num_query"] = 5
    # A ResNet takes seconds for its weights alone, however small the images are.
    count = 1 if content["model"]["name"].startswith("resnet") else 2
    content["outer"] |= {
        "num_iterations": count,
        "num_tasks": 1,
        "validate_every": 1,
        "num_val_tasks": count,
    }
    ensemble = min(2, content.get("test", {}).get("ensemble", 2))
    content["test"] = {"num_tasks": count, "ensemble": ensemble}


def _is_at_hand(dataset: str, size: int) -> bool:
    return size in prepared().get(dataset, ())
