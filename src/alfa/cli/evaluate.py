"""`alfa evaluate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from alfa.cli._options import (
    BatchNorm,
    Checkpoint,
    Dataset,
    Device,
    Json,
    NumQuery,
    NumSteps,
    NumTasks,
    Shot,
    Size,
    Split,
    TaskSet,
    TheRun,
    Threads,
    Way,
    check_choices,
)


def evaluate(
    run: TheRun,
    num_tasks: NumTasks = None,
    num_steps: NumSteps = None,
    split: Split = "test",
    checkpoint: Checkpoint = "best",
    dataset: Dataset = None,
    size: Size = None,
    way: Way = None,
    shot: Shot = None,
    num_query: NumQuery = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the tasks; by default the run's.")
    ] = None,
    batch_norm: BatchNorm = None,
    settings: TaskSet = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Test a trained run on tasks it has never seen.

    Examples:

        alfa evaluate runs/alfa

        alfa evaluate runs/alfa --num-steps 10 --set tasks.num_support=5 --json

        alfa evaluate runs/cifar --dataset cub --checkpoint ensemble
    """
    from rich.console import Console
    from rich.markup import escape

    from alfa.cli._tasks import task_changes
    from alfa.cli.progress import meter, show_testing, tell_unfinished
    from alfa.cli.show import figure_text
    from alfa.cli.start import set_up
    from alfa.evaluation import evaluate_run
    from alfa.runs import Run

    check_choices(split=split, checkpoint=checkpoint)
    opened = Run.open(run)
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    changes = task_changes(opened, dataset=dataset, size=size, settings=settings, **sizes)
    set_up(opened.experiment, device=device, threads=threads)
    with meter(run.name, quiet=as_json) as shown:
        tell_unfinished(shown, opened)
        evaluation = evaluate_run(
            opened,
            overrides=changes,
            checkpoint=checkpoint,
            num_tasks=num_tasks,
            num_steps=num_steps,
            split=split,  # type: ignore[arg-type]
            seed=seed,
            batch_norm=batch_norm,
            device=device,
            on_tasks=show_testing(shown),
        )
    if as_json:
        tasks = opened.with_overrides(changes).tasks.model_dump()
        content = {**evaluation.as_dict(), "checkpoint": checkpoint, "tasks": tasks}
        typer.echo(json.dumps(content, indent=2))
        return
    norm = f", {evaluation.batch_norm} batch norm" if evaluation.batch_norm else ""
    models = f", {evaluation.num_models} models" if evaluation.num_models > 1 else ""
    Console().print(
        f"{escape(str(run))}: {figure_text(evaluation)} (95 % interval over "
        f"{evaluation.num_tasks} {split} tasks, {evaluation.num_steps} steps{norm}{models})",
        highlight=False,
        soft_wrap=True,
    )
