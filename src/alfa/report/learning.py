"""Learning curves, read from run folders."""

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
    """A metric that every validation records."""

    title: str  # name and unit
    scale: float = 1.0  # factor from the recorded value to the unit
    explodes: bool = True  # outliers are possible, and are cut off


# Ordered by preference.
METRICS: Mapping[str, Metric] = {
    "val_accuracy": Metric("validation accuracy, %", 100.0, explodes=False),
    "val_loss": Metric("validation loss"),
    "train_loss": Metric("training loss"),
}


def read_curves(
    paths: Sequence[Path], *, metric: str | None = None
) -> tuple[dict[str, Points], str]:
    """Read a metric of runs; return curves by unique names of the runs, and the metric's name.

    The default metric is the first of `METRICS` that all runs have. Raises CheckpointError if a
    folder is not a run, or has no finite value of the metric.
    """
    names = _unique_names(paths)
    found: dict[str, dict[str, Points]] = {}
    for name, path in names.items():
        run = Run.open(path)
        _ = run.experiment  # raises if the configuration is damaged
        found[name] = by_metric(run.metrics)
    shared = [name for name in METRICS if all(name in curves for curves in found.values())]
    # Every validation records val_loss, so the error below names a run without validations.
    chosen = metric or next(iter(shared), "val_loss")
    for name, curves in found.items():
        if chosen not in curves:
            reason = (
                f"only {', '.join(curves)}" if curves else "because no validation was finite so far"
            )
            hint = ", or choose another --metric" if shared else ""
            raise CheckpointError(f"{names[name]} has no {chosen}, {reason}; leave it out{hint}.")
    return {name: curves[chosen] for name, curves in found.items()}, chosen


def by_metric(records: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """Return the finite values of each metric, in the order of `METRICS`."""
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
    """Name folders by the fewest trailing parts of their paths that make the names unique."""
    # Different paths may lead to the same folder.
    folders: dict[str, Path] = {}
    for path in paths:
        folders.setdefault(os.path.realpath(path), path)
    unique = list(folders.values())
    parts = [Path(os.path.abspath(path)).parts for path in unique]
    length = 1
    while len({x[-length:] for x in parts}) < len(unique):
        length += 1
    return {"/".join(x[-length:]): path for x, path in zip(parts, unique, strict=True)}
