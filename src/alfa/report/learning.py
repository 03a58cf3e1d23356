"""Learning curves, read from run folders."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfa.errors import CheckpointError
from alfa.runs import Run

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Metric:
    """A value that every validation records.

    Attributes:
        title: its name and unit.
        scale: the factor from the recorded value to that unit.
        explodes: whether single values may be far too high.
    """

    title: str
    scale: float = 1.0
    explodes: bool = True


# In the order of preference.
METRICS: Mapping[str, Metric] = {
    "val_accuracy": Metric("validation accuracy, %", 100.0, explodes=False),
    "val_loss": Metric("validation loss"),
    "train_loss": Metric("training loss"),
}


def read_curves(
    paths: Sequence[Path], *, metric: str | None = None
) -> tuple[dict[str, Points], str]:
    """A metric of runs by their shortest unique names, and the name of that metric.

    Args:
        paths: at least one run folder.
        metric: one of `METRICS`; by default the first that all runs have.

    Raises:
        CheckpointError: a folder is not a run, or has no such metric yet.
    """
    names = _unique_names(paths)
    found = {name: by_metric(_read_metrics(path)) for name, path in names.items()}
    shared = [name for name in METRICS if all(name in curves for curves in found.values())]
    # Every validation has this one, so that the error is about the run that has none.
    chosen = metric or next(iter(shared), "val_loss")
    for name, curves in found.items():
        if chosen not in curves:
            has = f"only {', '.join(curves)}" if curves else "as no validation was finite so far"
            hint = ", or choose another --metric" if shared else ""
            raise CheckpointError(f"{names[name]} has no {chosen}, {has}; leave it out{hint}.")
    return {name: curves[chosen] for name, curves in found.items()}, chosen


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    run = Run.open(path)
    # Raises if the configuration is damaged.
    _ = run.experiment
    return run.metrics


def by_metric(records: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """The finite values of each metric in some records, in the order of `METRICS`."""
    curves = {
        name: tuple(
            (int(record["iteration"]), metric.scale * record[name])
            for record in records
            if record.get(name) is not None and math.isfinite(record[name])
        )
        for name, metric in METRICS.items()
    }
    return {name: points for name, points in curves.items() if points}


def _unique_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Folders by as many of the last parts of their paths as it takes to tell them apart."""
    # The same folder may be given twice, by different paths.
    folders: dict[str, Path] = {}
    for path in paths:
        folders.setdefault(os.path.realpath(path), path)
    unique = list(folders.values())
    parts = [Path(os.path.abspath(path)).parts for path in unique]
    length = 1
    while len({x[-length:] for x in parts}) < len(unique):
        length += 1
    return {"/".join(x[-length:]): path for x, path in zip(parts, unique, strict=True)}
