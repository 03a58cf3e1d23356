"""Jobs: the models to train for cells of the paper, and their run folders."""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.config import Experiment, parse_experiment
from alfa.data import prepared
from alfa.paper._experiments import SIZES
from alfa.paper._table import Cell
from alfa.runs import RunFiles
from alfa.training import WEIGHTS, Pretraining

# The entry of a result that contains the name of the model, and marks quick runs.
RESULT_KEY = "paper"
# The published backbone classifies all training classes; the paper does not describe its training.
PRETRAINING = Pretraining(num_epochs=90, batch_size=128, augment=True)
QUICK_PRETRAINING = Pretraining(num_epochs=1, batch_size=4, max_batches=1)
# The minimum image size for four 2 x 2 poolings.
_QUICK_SIZE = 16


@dataclass(frozen=True)
class Job:
    """One model to train from one seed, and the cells that it measures."""

    run: str  # the name of the model
    path: Path  # the run folder
    experiment: Experiment
    cells: tuple[Cell, ...]
    is_quick: bool  # the run only checks that everything works; its figures are not results

    @property
    def name(self) -> str:
        """The name of the model and its seed."""
        return f"{self.run}/{self.path.name}"

    @property
    def pretraining(self) -> Path | None:
        """The folder of the backbone that must be pretrained first, if any."""
        weights = self.experiment.model.options.get("weights")
        # A run with a checkpoint has read the weights.
        has_started = RunFiles(self.path).checkpoint("last").is_file()
        if weights is None or has_started or Path(weights).is_file():
            return None
        return Path(weights).parent

    def test_dataset(self, cell: Cell) -> tuple[str, int | None]:
        """Return the dataset on which a cell tests the model, and its prepared size."""
        assert cell.test_dataset is not None
        size = SIZES[cell.test_dataset]
        if self.is_quick and not _is_prepared(cell.test_dataset, size):
            return "strokes", None
        return cell.test_dataset, size

    def error_file(self, cell: Cell | None = None) -> Path:
        """Return the file for the error of the training, or of the test for a cell."""
        name = "training" if cell is None else str(cell.test_dataset)
        return self.path / f".{name}.error.txt"


def plan_jobs(
    cells: Iterable[Cell],
    out: Path,
    *,
    num_seeds: int = 1,
    num_iterations: int | None = None,
    quick: bool = False,
) -> list[Job]:
    """Plan the jobs that measure cells, with run folders in `out`.

    Cells with the same model share a job for each of the seeds 0, 1, ... `num_iterations` replaces
    the outer iterations. `quick` jobs take seconds and only check that everything works.
    """
    by_run: dict[str, list[Cell]] = {}
    for cell in cells:
        run = _quick_name(cell.run, cell) if quick else cell.run
        by_run.setdefault(run, []).append(cell)
    folder = out / ("quick" if quick else "runs")
    return [
        Job(
            run,
            folder / run / f"seed-{seed}",
            _experiment(served[0], folder, seed, num_iterations, quick=quick),
            tuple(served),
            quick,
        )
        for seed in range(num_seeds)
        for run, served in by_run.items()
    ]


def on_strokes(run: str) -> str:
    """Return the name of a quick model that is trained on generated characters."""
    return re.sub(r"^[a-z0-9-]+(?=-\d+w\d+s/|-varied/)", "strokes", run)


def _quick_name(name: str, cell: Cell) -> str:
    """Return the name of a quick model, which models without prepared datasets share."""
    is_alone = cell.depends_on_dataset or _has_images(cell.content["tasks"])
    return name if is_alone else on_strokes(name)


def _has_images(tasks: Mapping[str, Any]) -> bool:
    """Return whether the dataset of tasks, if any, is prepared."""
    if "dataset" not in tasks:
        return True
    return _is_prepared(tasks["dataset"], tasks.get("stored_size", tasks["size"]))


def _is_prepared(dataset: str, size: int) -> bool:
    return size in prepared().get(dataset, ())


def _experiment(
    cell: Cell, folder: Path, seed: int, num_iterations: int | None, *, quick: bool
) -> Experiment:
    content: dict[str, Any] = {**copy.deepcopy(dict(cell.content)), "seed": seed}
    if cell.pretrained is not None:
        name = _quick_name(cell.pretrained, cell) if quick else cell.pretrained
        content["model"]["weights"] = str(folder / "pretrained" / name / WEIGHTS)
    if quick:
        _make_quick(content)
    if num_iterations is not None:
        content["outer"]["num_iterations"] = num_iterations
    return parse_experiment(content, source=cell.id)


def _make_quick(content: dict[str, Any]) -> None:
    """Reduce the images, their size, the tasks, and the iterations; change nothing else."""
    tasks = content["tasks"]
    is_prepared = _has_images(tasks)
    if "stored_size" in tasks:
        if not is_prepared:
            tasks |= {"dataset": "strokes", "stored_size": _QUICK_SIZE}
        # One support image and one query of every class.
        tasks |= {"size": _QUICK_SIZE, "max_query": 1, "max_support": tasks.get("max_way", 50)}
    elif "dataset" in tasks:
        generated = {"dataset": "strokes", "size": _QUICK_SIZE}
        tasks |= {"seen_size": _QUICK_SIZE} if is_prepared else generated
        tasks |= {key: 1 for key in ("num_query", "train_num_query") if key in tasks}
    else:
        tasks["num_query"] = 5
    # A residual network takes seconds even for tiny images, because of its many weights.
    count = 1 if content["model"]["name"].startswith(("resnet", "wrn")) else 2
    content["outer"] |= {"num_iterations": count, "num_val_tasks": count}
    content["outer"] |= {"num_tasks": 1, "validate_every": 1}
    if "pretraining" in content:
        quick = {"num_epochs": 1, "batch_size": 4, "max_batches": 1, "decay_epochs": []}
        content["pretraining"] |= quick
    ensemble = min(2, content.get("test", {}).get("ensemble", 2))
    content["test"] = {"num_tasks": count, "ensemble": ensemble}
