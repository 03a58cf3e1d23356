"""Evaluation and ranking of several runs on several datasets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from alfa._io import write_json
from alfa.data import open_store, prepared
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
    given: dict[int, float] = {}
    while left:
        best = left[0]
        ties = [
            number
            for number in left
            if number == best or not unpaired_difference(found[number], found[best]).is_decided
        ]
        given |= dict.fromkeys(ties, len(given) + (len(ties) + 1) / 2)
        left = [number for number in left if number not in ties]
    return [given[number] for number in range(len(found))]


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
    """Evaluate a run on a prepared dataset, or read the result of an earlier identical evaluation.

    `size` is the prepared image size, by default the only one. The remaining options are those of
    `evaluate_run`.
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
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        known = json.loads(path.read_text())
        if known["kind"] == kind:
            return Evaluation(**{**known["found"], "per_task": tuple(known["found"]["per_task"])})
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
