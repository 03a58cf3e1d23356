"""`alfa evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli.train import Device, Json, Threads

if TYPE_CHECKING:
    from alfa.config import Experiment

NumTasks = Annotated[
    int | None, typer.Option(min=1, help="Tasks to average over; by default the run's.")
]
NumSteps = Annotated[
    int | None, typer.Option(min=0, help="Inner steps; by default as in the run's test.")
]
Split = Annotated[str, typer.Option(help="train, val or test.")]
Checkpoint = Annotated[
    str,
    typer.Option(
        help="best, last, or ensemble: the mean of the outputs of the best epochs' models."
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(help="Another dataset of images; they are brought to the model's size."),
]
Size = Annotated[
    int | None, typer.Option(min=1, help="In which --dataset is prepared, where it is in several.")
]
TaskSet = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting of the tasks, such as `tasks.num_support=5`."),
]
Way = Annotated[int | None, typer.Option(min=1, help="Classes of a task.")]
Shot = Annotated[int | None, typer.Option(min=1, help="Support images of a class.")]
NumQuery = Annotated[int | None, typer.Option(min=1, help="Queries of a class.")]
BatchNorm = Annotated[
    str | None, typer.Option(help="transductive or inductive; by default as in training.")
]


def check_options(split: str, checkpoint: str) -> None:
    """Raise if an option has a value that it cannot have."""
    from alfa.data import SPLITS
    from alfa.errors import check_choice

    check_choice("--split", split, SPLITS)
    check_choice("--checkpoint", checkpoint, ("best", "last", "ensemble"))


def check_size(size: int | None, dataset: object) -> None:
    """Raise if a size is given and no dataset that is prepared in it."""
    from alfa.errors import ConfigError

    if size is not None and not dataset:
        raise ConfigError(
            f"--size is {size}, which is that of another dataset, but there is no --dataset; give "
            "both, or none of them."
        )


def task_changes(
    experiment: Experiment,
    *,
    dataset: str | None,
    size: int | None,
    settings: list[str] | None,
    **options: int | None,
) -> list[str]:
    """The changes to the tasks of a run that the options of a command ask for.

    Args:
        experiment: that was trained.
        dataset: another one, that `size` is of.
        size: in which it is prepared.
        settings: changes as they are given.
        options: other options of the tasks, by their names.

    Raises:
        ConfigError: one of them is not about tasks.
    """
    from alfa.errors import ConfigError
    from alfa.train import on_dataset

    check_size(size, dataset)
    for setting in settings or []:
        if not setting.strip().startswith("tasks."):
            raise ConfigError(
                f"--set {setting}: an evaluation can change the tasks only, such as "
                "tasks.num_support=5; the rest is as it was trained."
            )
    changes = [f"tasks.{key}={value}" for key, value in options.items() if value is not None]
    if dataset is not None:
        changes += on_dataset(dataset, size=size, tasks=experiment.tasks.name)
    return [*changes, *(settings or [])]


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder that `alfa train` made.")],
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
        int | None, typer.Option(min=0, help="Of the tasks; by default the run's.")
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

    from alfa.cli.progress import meter, show_testing, tell_unfinished
    from alfa.cli.show import figure_text
    from alfa.cli.start import set_up
    from alfa.train import Run, judge

    check_options(split, checkpoint)
    trained = Run(run).experiment()
    changes = task_changes(
        trained,
        dataset=dataset,
        size=size,
        settings=settings,
        way=way,
        shot=shot,
        num_query=num_query,
    )
    set_up(trained, device=device, threads=threads)
    with meter(run.name, quiet=as_json) as shown:
        tell_unfinished(shown, Run(run))
        evaluation, changed = judge(
            Run(run),
            changes=changes,
            checkpoint=checkpoint,
            num_tasks=num_tasks,
            num_steps=num_steps,
            split=split,  # type: ignore[arg-type]
            seed=seed,
            batch_norm=batch_norm,
            device=device,
            on_tasks=show_testing(shown),
        )
    content = {
        **evaluation.as_dict(),
        "checkpoint": checkpoint,
        "tasks": changed.tasks.model_dump(),
    }
    if as_json:
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
