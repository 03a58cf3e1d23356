"""A trained run, tested on any tasks that its model can take."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import torch

from alfa.build import build_learner, build_tasks
from alfa.config import Experiment, load_experiment
from alfa.data import Split, Tasks
from alfa.inner import Learner, check_batch_norm
from alfa.train.evaluate import Evaluation, evaluate, judged_tasks
from alfa.train.run import Run


def judge(
    run: Run,
    *,
    changes: Sequence[str] = (),
    checkpoint: str = "best",
    num_tasks: int | None = None,
    num_steps: int | None = None,
    split: Split = "test",
    seed: int | None = None,
    batch_norm: str | None = None,
    device: torch.device | str = "cpu",
    on_tasks: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Evaluation, Experiment]:
    """Test a run's model on tasks, by default those that it was made for.

    Args:
        run: the run, whose own dataset need not be there.
        changes: to its tasks, such as ``"tasks.dataset=cub"``.
        checkpoint: ``"best"``, ``"last"`` or ``"ensemble"``.
        num_tasks: how many; by default as many as the run's own test has.
        num_steps: inner steps; by default as in the run's own test.
        split: that the tasks come from.
        seed: of the tasks; by default the run's.
        batch_norm: ``"transductive"`` or ``"inductive"``; by default as in training.
        device: where to compute.
        on_tasks: called with the tasks that are done, and all of them, counted for each model.

    Returns:
        What was found, and the experiment with the changes.

    Raises:
        AlfaError: there is no such run, or its model cannot take these tasks.
    """
    trained = run.experiment()
    learner, tasks, changed = reopen(run, changes)
    if batch_norm is not None:
        learner.batch_norm = check_batch_norm(learner.model, batch_norm, name="--batch-norm")
    members = run.load_for(checkpoint, trained)
    count = trained.test.num_tasks if num_tasks is None else num_tasks
    total = count * len(members)
    found = evaluate(
        learner.to(device),
        tasks,
        members=members,
        num_tasks=count,
        num_steps=trained.inner.num_test_steps if num_steps is None else num_steps,
        split=split,
        seed=trained.seed if seed is None else seed,
        device=device,
        on_tasks=lambda done: on_tasks(done, total),
    )
    return found, changed


def reopen(run: Run, changes: Sequence[str] = ()) -> tuple[Learner, Tasks, Experiment]:
    """A run's learner, before any checkpoint is loaded, and tasks that it can take.

    Args:
        run: the run, whose own dataset need not be there if the changes name another.
        changes: to its tasks, such as ``"tasks.dataset=cub"``.

    Returns:
        The learner, the tasks, and the experiment with the changes.
    """
    trained = run.experiment()
    changed = load_experiment(run.config, changes)
    signature = run.signature(trained)
    learner = build_learner(trained, signature)
    # A decay of each weight is that of as many outputs as there were.
    any_way = learner.init.any_way and not trained.rule.options.get("per_parameter_decay")
    tasks = judged_tasks(build_tasks(changed), signature, any_way=any_way)
    return learner, tasks, changed


def on_dataset(dataset: str, *, size: int | None = None, tasks: str = "images") -> list[str]:
    """The changes to a run's tasks that take their images from another dataset.

    Args:
        dataset: its name.
        size: in which it was prepared; by default the only one. The size of the images trained on
            says nothing about those of another dataset.
        tasks: the name of the run's tasks.
    """
    prepared = "none" if size is None else size
    # A name may look like a number.
    name = json.dumps(dataset, ensure_ascii=False)
    if tasks == "meta-dataset":
        one = [f"tasks.dataset=[{name}]", "tasks.weights=none"]
        return [*one, f"tasks.stored_size={prepared}"]
    return [f"tasks.dataset={name}", f"tasks.size={prepared}"]
