"""Evaluation and ranking of runs on any tasks that their models can take."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from alfa._io import write_json
from alfa.data import Split, open_store, prepared
from alfa.evaluation._compare import unpaired_difference
from alfa.evaluation._evaluate import Evaluation, evaluate
from alfa.learner import check_batch_norm
from alfa.runs import Run


def evaluate_run(
    run: Run,
    *,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    num_tasks: int | None = None,
    num_steps: int | None = None,
    split: Split = "test",
    seed: int | None = None,
    batch_norm: str | None = None,
    device: torch.device | str = "cpu",
    on_tasks: Callable[[int, int], None] = lambda done, total: None,
    on_features: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate the models of a run, by default with the tasks and options of its test.

    `evaluate` documents the remaining options.

    Args:
        run: the run.
        overrides: changes to its tasks, such as ``"tasks.dataset=cub"``.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"``.
        batch_norm: ``"transductive"`` or ``"inductive"``; by default as in training.
        on_tasks: called with the completed and the total number of tasks, counted for each model.
        on_features: called with the completed and the total number of images while a pretrained
            backbone computes their features.

    Raises:
        AlfaError: the run's models cannot take the tasks.
    """
    tasks = run.tasks(overrides)
    learners = run.learners(checkpoint, device=device)
    if batch_norm is not None:
        for learner in learners:
            learner.batch_norm = check_batch_norm(learner.model, batch_norm, name="--batch-norm")
    tasks.prepare(split, on_features)
    count = run.experiment.test.num_tasks if num_tasks is None else num_tasks
    return evaluate(
        learners,
        tasks,
        num_tasks=count,
        num_steps=run.num_test_steps if num_steps is None else num_steps,
        split=split,
        seed=run.experiment.seed if seed is None else seed,
        device=device,
        on_tasks=lambda done: on_tasks(done, count * len(learners)),
    )


def ranks(found: Sequence[Evaluation]) -> list[float]:
    """Rank models on the same tasks as the leaderboard of Meta-Dataset does.

    Rank 1 is the best. The best model and all models that do not differ significantly from it, by
    the unpaired 95 % interval, share their mean rank. The remaining models are ranked in the same
    way. The paired `difference` is more sensitive.
    """
    left = sorted(range(len(found)), key=lambda number: -found[number].score)
    given: dict[int, float] = {}
    while left:
        best = found[left[0]]
        ties = [
            number for number in left if not unpaired_difference(found[number], best).is_decided
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
    on_features: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate a run on a prepared dataset, or read the result of an earlier identical evaluation.

    `size` is the prepared image size, by default the only one. `evaluate_run` documents the
    remaining options.
    """
    result = run.result or {}
    options: dict[str, Any] = {"num_tasks": num_tasks, "seed": seed, "checkpoint": checkpoint}
    kind = {
        "dataset": dataset,
        "size": size,
        **options,
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
    overrides = run.dataset_overrides(dataset, size=size)
    found = evaluate_run(
        run,
        overrides=overrides,
        **options,
        device=device,
        on_tasks=on_tasks,
        on_features=on_features,
    )
    # A run without a result may still be training, so its evaluation is not stored.
    if result and not run.is_pretrained:
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
