"""What runs have reached, validation by validation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.errors import CheckpointError
from alfa.train import Run

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Metric:
    """A figure of every validation.

    Attributes:
        title: with its unit.
        scale: of that unit.
        explodes: whether single values may be far too high.
    """

    title: str
    scale: float = 1.0
    explodes: bool = True


# What runs are compared by, the best of them first.
METRICS: Mapping[str, Metric] = {
    "val_accuracy": Metric("validation accuracy, %", 100.0, explodes=False),
    "val_loss": Metric("validation loss"),
    "train_loss": Metric("training loss"),
}


def read_curves(
    paths: Sequence[Path], *, metric: str | None = None
) -> tuple[dict[str, Points], str]:
    """A metric of runs, by names that tell them apart, and which metric it is.

    Args:
        paths: of run folders, at least one.
        metric: one of `METRICS`; by default the first that all of them have.

    Raises:
        CheckpointError: a folder is no run, or has none of that yet.
    """
    names = _names(paths)
    found = {name: _curves(path) for name, path in names.items()}
    shared = [name for name in METRICS if all(name in curves for curves in found.values())]
    # Without any in common, the sentence is about one that every validation has.
    chosen = metric or next(iter(shared), "val_loss")
    for name, curves in found.items():
        if chosen not in curves:
            told = f"only {', '.join(curves)}" if curves else "as no validation was finite so far"
            hint = ", or choose another --metric" if shared else ""
            raise CheckpointError(f"{names[name]} has no {chosen}, {told}; leave it out{hint}.")
    return {name: curves[chosen] for name, curves in found.items()}, chosen


def _curves(path: Path) -> dict[str, Points]:
    """Every metric that a run has."""
    run = Run(path)
    # Says what is wrong with a folder that is none.
    run.experiment()
    return by_metric(run.read_metrics())


def by_metric(records: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """Every metric that some records have, in the order of `METRICS`."""
    curves = {
        name: tuple(
            (int(record["iteration"]), metric.scale * record[name])
            for record in records
            if record.get(name) is not None and math.isfinite(record[name])
        )
        for name, metric in METRICS.items()
    }
    return {name: points for name, points in curves.items() if points}


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Folders by their last names, with as many of those above as it takes to differ."""
    # One that is named twice is one, however it is written.
    folders: dict[str, Path] = {}
    for path in paths:
        folders.setdefault(os.path.realpath(path), path)
    unique = list(folders.values())
    parts = [Path(os.path.abspath(path)).parts for path in unique]
    length = 1
    while len({x[-length:] for x in parts}) < len(unique):
        length += 1
    return {"/".join(x[-length:]): path for x, path in zip(parts, unique, strict=True)}
