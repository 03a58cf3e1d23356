"""What runs have reached, validation by validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alfa.errors import CheckpointError
from alfa.train import Run

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Metric:
    """A figure of every validation.

    Attributes:
        title: with its unit.
        scale: of that unit.
    """

    title: str
    scale: float = 1.0


# What runs are compared by, the best of them first.
METRICS: Mapping[str, Metric] = {
    "val_accuracy": Metric("validation accuracy, %", 100.0),
    "val_loss": Metric("validation loss"),
    "train_loss": Metric("training loss"),
}


def read_curves(
    paths: Sequence[Path], *, metric: str | None = None
) -> tuple[dict[str, Points], str]:
    """A metric of runs, by names that tell them apart, and which metric it is.

    Args:
        paths: of run folders.
        metric: one of `METRICS`; by default the first that all of them have.

    Raises:
        CheckpointError: a folder is no run, or has none of that yet.
    """
    found = {name: _curves(path) for name, path in _names(paths).items()}
    shared = [name for name in METRICS if all(name in curves for curves in found.values())]
    chosen = metric or next(iter(shared), "val_loss")
    for path, curves in zip(dict.fromkeys(paths), found.values(), strict=True):
        if chosen not in curves:
            told = f"only {', '.join(curves)}" if curves else "no validation yet"
            raise CheckpointError(
                f"{path} has no {chosen}, {told}; leave it out"
                f"{', or choose another --metric' if curves else ''}."
            )
    return {name: curves[chosen] for name, curves in found.items()}, chosen


def _curves(path: Path) -> dict[str, Points]:
    """Every metric that a run has."""
    run = Run(path)
    # Says what is wrong with a folder that is none.
    run.experiment()
    records = run.read_metrics()
    curves = {
        name: tuple(
            (int(record["iteration"]), metric.scale * record[name])
            for record in records
            if record.get(name) is not None
        )
        for name, metric in METRICS.items()
    }
    return {name: points for name, points in curves.items() if points}


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Folders by their last names, with as many of those above as it takes to differ."""
    unique = list(dict.fromkeys(paths))
    parts = [path.resolve().parts for path in unique]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(x[-length:]) for x in parts]
        if len(set(names)) == len(unique):
            return dict(zip(names, unique, strict=True))
    return {str(path): path for path in unique}
