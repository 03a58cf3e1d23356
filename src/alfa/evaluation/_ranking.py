"""Evaluation and ranking of several runs on several datasets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from alfa._io import write_json
from alfa.data import open_store, prepared
from alfa.errors import AlfaError
from alfa.evaluation._compare import unpaired_difference
from alfa.evaluation._evaluate import Evaluation
from alfa.evaluation._evaluate_run import evaluate_run
from alfa.runs import Run


def ranks(found: Sequence[Evaluation]) -> list[float]:
    """Rank models on the same tasks as the leaderboard of Meta-Dataset does.

    Rank 1 is the best. The best model and all models that do not differ significantly from it, by
    the unpaired 95 % interval, share their mean rank. The remaining models are ranked in the same
    way. The paired `difference` is more sensitive.
    """
    left = sorted(range(len(found)), key=lambda number: -found[number].score)
    ranks: dict[int, float] = {}
    while left:
        best = left[0]
        ties = [
            number
            for number in left
            if number == best or not unpaired_difference(found[number], found[best]).is_decided
        ]
        ranks |= dict.fromkeys(ties, len(ranks) + (len(ties) + 1) / 2)
        left = [number for number in left if number not in ties]
    return [ranks[number] for number in range(len(found))]


def average_ranks(table: Mapping[str, Sequence[Evaluation]]) -> list[float]:
    """Return the mean rank of each model, given the evaluations on each dataset."""
    rows = [ranks(found) for found in table.values()]
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def evaluate_once(
    run: Run,
    dataset: str,
    *,
    size: int | None = None,
    num_tasks: int,
    seed: int,
    checkpoint: str = "best",
    device: torch.device | str = "cpu",
    on_tasks: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate a run on a dataset, or read the stored result of an earlier identical evaluation.

    Args:
        run: the run.
        dataset: the name of a prepared dataset.
        size: the prepared image size; by default the only one.
        num_tasks: number of tasks.
        seed: the seed of the tasks.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"``.
        device: the device to compute on.
        on_tasks: called with the completed and the total number of tasks.
    """
    result = run.result or {}
    kind = {
        "dataset": dataset,
        "size": size,
        "num_tasks": num_tasks,
        "seed": seed,
        "checkpoint": checkpoint,
        "num_iterations": result.get("num_iterations"),
        "best_iteration": result.get("best_iteration"),
        "fingerprint": run.fingerprint,
        "images": _images(dataset, size),
        **({"num_models": run.experiment.test.ensemble} if checkpoint == "ensemble" else {}),
    }
    path = run.path / "tests" / f"leaderboard-{dataset}-{checkpoint}.json"
    known = _read(path)
    if known is not None and known.get("kind") == kind:
        content = {**known["found"], "per_task": tuple(known["found"]["per_task"])}
        return Evaluation(**content)
    found = evaluate_run(
        run,
        overrides=run.dataset_overrides(dataset, size=size),
        checkpoint=checkpoint,
        num_tasks=num_tasks,
        seed=seed,
        device=device,
        on_tasks=on_tasks,
    )
    # A run without a result may still be training, so its evaluation is not stored.
    if result:
        write_json(path, {"kind": kind, "found": asdict(found)})
    return found


def _images(dataset: str, size: int | None) -> list[Any]:
    """Return the properties of a dataset's stores that change if it is prepared differently."""
    stores = [open_store(dataset, size=side) for side in prepared().get(dataset, [])]
    return [
        # The source determines the hierarchy of the classes.
        [index.size, index.listing, index.items, *([index.source] if index.source else [])]
        for index in (store.index for store in stores)
        if size in (None, index.size)
    ]


def _read(path: Path) -> dict[str, Any] | None:
    """Read a stored evaluation; return None if it is missing or damaged."""
    try:
        content = json.loads(path.read_text())
        Evaluation(**content["found"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AlfaError):
        return None
    return dict(content)
