"""Runs on several sources of tasks, with the rank that each has among the others."""

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
    """The rank of each of several models on the same tasks, as Meta-Dataset's leaderboard has it.

    1 is the best. From that one on, those whose difference from it lies within the 95 % interval
    of two independent means share the mean of their ranks; then the best of the others, and so on.
    `difference`, which is taken task by task, tells smaller ones.

    Args:
        found: of each model.
    """
    left = sorted(range(len(found)), key=lambda number: -found[number].score)
    given: dict[int, float] = {}
    while left:
        best = left[0]
        equals = [
            number
            for number in left
            if number == best or not unpaired_difference(found[number], found[best]).is_decided
        ]
        first = len(given) + 1
        rank = first + (len(equals) - 1) / 2
        given |= dict.fromkeys(equals, rank)
        left = [number for number in left if number not in equals]
    return [given[number] for number in range(len(found))]


def average_ranks(table: Mapping[str, Sequence[Evaluation]]) -> list[float]:
    """The mean rank of each model over the sources.

    Args:
        table: for every source, what was found of each model.
    """
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
    """Test a run on a source, or read what an earlier test of the same kind found.

    Args:
        run: the run.
        dataset: the source.
        size: in which it is prepared; by default the only one.
        num_tasks: how many tasks of it.
        seed: of the tasks.
        checkpoint: ``"best"``, ``"last"`` or ``"ensemble"``.
        device: where to compute.
        on_tasks: called with the tasks that are done, and all of them.
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
    # A run without its result may still be trained: what is found of it today is not kept.
    if result:
        write_json(path, {"kind": kind, "found": asdict(found)})
    return found


def _images(dataset: str, size: int | None) -> list[Any]:
    """What tells the stores of a dataset from what they may be made into anew."""
    stores = [open_store(dataset, size=side) for side in prepared().get(dataset, [])]
    return [
        # Which classes go together is a matter of what a store was made from.
        [index.size, index.listing, index.items, *([index.source] if index.source else [])]
        for index in (store.index for store in stores)
        if size in (None, index.size)
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
        Evaluation(**content["found"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AlfaError):
        # What was found before can be found again.
        return None
    return dict(content)
