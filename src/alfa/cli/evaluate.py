"""`alfa evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from alfa.cli.train import Device, Json, Set, Threads


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder that `alfa train` made.")],
    num_tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks to average over; by default the run's.")
    ] = None,
    num_steps: Annotated[
        int | None, typer.Option(min=0, help="Inner steps; by default as in training.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the tasks; by default the run's.")
    ] = None,
    batch_norm: Annotated[
        str | None,
        typer.Option(help="transductive or inductive; by default as in training."),
    ] = None,
    settings: Set = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Test a trained run on tasks it has never seen.

    Examples:

        alfa evaluate runs/alfa

        alfa evaluate runs/alfa --num-steps 10 --set tasks.num_support=5 --json
    """
    from rich.console import Console

    from alfa.build import build_learner, build_tasks
    from alfa.cli.show import interval_text
    from alfa.cli.start import set_up
    from alfa.config import load_experiment
    from alfa.data import SPLITS
    from alfa.errors import ConfigError, check_choice
    from alfa.inner import check_batch_norm
    from alfa.train import Run
    from alfa.train import evaluate as run_evaluation

    check_choice("--split", split, SPLITS)
    check_choice("--checkpoint", checkpoint, ("best", "last"))
    for setting in settings or []:
        if not setting.strip().startswith("tasks."):
            raise ConfigError(
                f"--set {setting}: an evaluation can change the tasks only, such as "
                "tasks.num_support=5; the rest is as it was trained."
            )
    trained = Run(run).experiment()
    changed = load_experiment(Run(run).config, settings or [])
    set_up(trained, device=device, threads=threads)
    tasks, own_tasks = build_tasks(changed), build_tasks(trained)
    if (tasks.input_shape, tasks.num_outputs) != (own_tasks.input_shape, own_tasks.num_outputs):
        raise ConfigError(
            f"the run was trained on inputs of shape {tuple(own_tasks.input_shape)} with "
            f"{own_tasks.num_outputs} outputs, but these tasks have {tuple(tasks.input_shape)} "
            f"with {tasks.num_outputs}."
        )
    learner = build_learner(trained, own_tasks)
    if batch_norm is not None:
        check_batch_norm(learner.model, batch_norm, name="--batch-norm")
        learner.batch_norm = batch_norm  # type: ignore[assignment]
    Run(run).load_checkpoint(checkpoint, trained).restore(learner)
    evaluation = run_evaluation(
        learner.to(device),
        tasks,
        num_tasks=trained.test.num_tasks if num_tasks is None else num_tasks,
        num_steps=num_steps,
        split=split,  # type: ignore[arg-type]
        seed=trained.seed if seed is None else seed,
        device=device,
    )
    if as_json:
        typer.echo(json.dumps(evaluation.as_dict(), indent=2))
    else:
        norm = f", {evaluation.batch_norm} batch norm" if evaluation.batch_norm else ""
        Console().print(
            f"{run}: loss {evaluation.loss:.4f} {interval_text(evaluation.interval)} "
            f"(95 % interval over {evaluation.num_tasks} {split} tasks, "
            f"{evaluation.num_steps} steps{norm})",
            highlight=False,
            soft_wrap=True,
        )
