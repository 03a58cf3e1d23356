"""`alfa data show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import NumQuery, Shot, Split, Way, check_choices, check_outputs

if TYPE_CHECKING:
    from alfa.data import Split as SplitName
    from alfa.data import Tasks
    from alfa.learner import Learner


def show(
    source: Annotated[
        str, typer.Argument(help="A prepared or generated dataset, or a run folder.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The image; by default the name of SOURCE and .png.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="For a run: tasks of another dataset.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="The prepared size of the dataset.")
    ] = None,
    split: Split = "test",
    way: Way = None,
    shot: Shot = None,
    num_query: NumQuery = None,
    episode: Annotated[int, typer.Option(min=0, help="Which episode.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the episodes; by default 0, or the run's.")
    ] = None,
    varied: Annotated[
        bool, typer.Option("--varied", help="Sample the sizes of the task as Meta-Dataset does.")
    ] = False,
) -> None:
    """Draw one episode of a dataset: the support set and the queries.

    For a run, the episode comes from its tasks, and each query is marked with the class that the
    adapted model predicts. By default, a task of a dataset has 5 classes with 5 support images
    and 15 queries each. A dataset is preferred to a run folder of the same name; write
    `./NAME` for the folder.

    Examples:

        alfa data show strokes

        alfa data show cub --split val --shot 1 --out cub.png

        alfa data show md-omniglot --varied

        alfa data show runs/cifar --dataset cub --episode 3 --out cub.png
    """
    from alfa.cli.start import open_best
    from alfa.data import GENERATED_DATASETS, FewShot, Varied, open_images, prepared, related_in
    from alfa.errors import ConfigError
    from alfa.report.episode_figure import episode_figure
    from alfa.runs import RunFiles

    check_choices(split=split)
    path = out or Path(f"{Path(source).resolve().name}.png")
    check_outputs([path], (".png",))
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    given = [f"--{key.replace('_', '-')}" for key, value in sizes.items() if value is not None]
    if varied and given:
        raise ConfigError(
            f"{' and '.join(given)} cannot be given with --varied, which samples the sizes of a "
            "task; omit one of them."
        )
    options: dict[str, Any] = {"split": split, "index": episode}
    if source not in {*GENERATED_DATASETS, *prepared()} and RunFiles(source).exists:
        if varied:
            raise ConfigError("--varied is for datasets; the tasks of a run are its own.")
        run, learner, tasks = open_best(Path(source), dataset, size, **sizes)
        if not isinstance(tasks, FewShot | Varied):
            raise ConfigError(
                f"{source} was not trained on images; use `alfa plot fit` for curves."
            )
        options["seed"] = run.experiment.seed if seed is None else seed
        options |= _predicted(learner, tasks, **options)
    elif dataset is not None:
        raise ConfigError(f"--dataset is for runs, but {source} is not a run; omit it.")
    else:
        images = open_images(source, size=size)
        options["seed"] = seed or 0
        if varied:
            tasks = Varied([images], related=related_in(images))
        else:
            tasks = FewShot(images, way=way or 5, shot=shot or 5, num_query=num_query or 15)
    episode_figure(tasks, path, **options)
    typer.echo(f"written: {path}")


def _predicted(
    learner: Learner, tasks: Tasks, *, split: SplitName, index: int, seed: int
) -> dict[str, Any]:
    """The predictions of a learner for the queries of an episode, and a note on them."""
    import torch

    episode = tasks.episode(index, num_tasks=1, split=split, seed=seed)
    with torch.no_grad():
        outcome = learner(episode.to("cpu", learner.dtype), order="none")
    predictions = outcome.outputs[0].argmax(1)
    hits = int((predictions == episode.query_y[0]).sum())
    note = f"{hits} of {len(predictions)} right after {learner.num_steps} steps"
    return {"predictions": predictions, "note": note}
