"""`alfa evaluate`."""

import typer

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import meter, report_unfinished, show_testing
from alfa.cli.show import figure_text, print_json
from alfa.cli.start import Computing, task_changes


def evaluate(
    run: opts.RunFolder,
    num_tasks: opts.NumTasks = None,
    num_steps: opts.NumSteps = None,
    split: opts.Split = "test",
    checkpoint: opts.Checkpoint = "best",
    dataset: opts.Dataset = None,
    size: opts.Size = None,
    way: opts.Way = None,
    shot: opts.Shot = None,
    num_query: opts.NumQuery = None,
    seed: opts.RunSeed = None,
    batch_norm: opts.BatchNorm = None,
    settings: opts.TaskSet = None,
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Evaluate a trained run on new tasks.

    Reports the mean accuracy or loss with its 95 % interval over tasks.

    Examples:

        alfa evaluate runs/alfa
        alfa evaluate runs/alfa --num-steps 10 --set tasks.num_support=5 --json
        alfa evaluate runs/cifar --dataset cub --checkpoint ensemble
    """
    opts.check_choices(split=split, checkpoint=checkpoint)
    opened = Computing(device, threads).open_run(run)
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    changes = task_changes(opened, dataset=dataset, size=size, settings=settings, **sizes)
    with meter(run.name, quiet=as_json) as shown:
        report_unfinished(shown, opened)
        evaluation = lazy.evaluation.evaluate_run(
            opened,
            overrides=changes,
            checkpoint=checkpoint,
            num_tasks=num_tasks,
            num_steps=num_steps,
            split=split,  # type: ignore[arg-type]
            seed=seed,
            batch_norm=batch_norm,
            device=device,
            **show_testing(shown),
        )
    if as_json:
        tasks = opened.with_overrides(changes).tasks.model_dump()
        print_json({**evaluation.as_dict(), "checkpoint": checkpoint, "tasks": tasks})
        return
    norm = f", {evaluation.batch_norm} batch norm" if evaluation.batch_norm else ""
    models = f", {evaluation.num_models} models" if evaluation.num_models > 1 else ""
    typer.echo(
        f"{run}: {figure_text(evaluation)} (95 % interval over {evaluation.num_tasks} {split} "
        f"tasks, {evaluation.num_steps} steps{norm}{models})"
    )
