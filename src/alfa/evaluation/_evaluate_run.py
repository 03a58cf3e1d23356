"""Evaluation of a run on any tasks that its models can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from alfa.data import Split
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
) -> Evaluation:
    """Evaluate the models of a run, by default on the tasks of its own test.

    The remaining options are those of `evaluate` and default to the run's own test.

    Args:
        run: the run.
        overrides: changes to its tasks, such as ``"tasks.dataset=cub"``.
        checkpoint: ``"best"``, ``"last"``, or ``"ensemble"``.
        batch_norm: ``"transductive"`` or ``"inductive"``; by default as in training.
        on_tasks: called with the completed and the total number of tasks, counted for each model.

    Raises:
        AlfaError: the run's models cannot take the tasks.
    """
    tasks = run.tasks(overrides)
    learners = run.learners(checkpoint, device=device)
    if batch_norm is not None:
        for learner in learners:
            learner.batch_norm = check_batch_norm(learner.model, batch_norm, name="--batch-norm")
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
