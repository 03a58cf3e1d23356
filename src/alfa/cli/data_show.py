"""`alfa data show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.start import open_best
from alfa.errors import ConfigError


def show(
    source: Annotated[str, Argument(help="Prepared or generated dataset, or run folder.")],
    out: Annotated[Path | None, Option(help="PNG file; defaults to the name of SOURCE.")] = None,
    dataset: Annotated[str | None, Option(help="For a run: use another dataset.")] = None,
    size: Annotated[int | None, Option(min=1, help="Prepared size of the dataset.")] = None,
    split: opts.Split = "test",
    way: opts.Way = None,
    shot: opts.Shot = None,
    num_query: opts.NumQuery = None,
    episode: Annotated[int, Option(min=0, help="Index of the episode.")] = 0,
    seed: Annotated[int | None, Option(min=0, help="Seed; defaults to the run's or 0.")] = None,
    varied: Annotated[bool, Option("--varied", help="Sample sizes like Meta-Dataset.")] = False,
) -> None:
    """Draw one episode of a dataset: its support set and its queries.

    For a run, the episode comes from its tasks, and each query shows the class that the adapted
    model predicts. By default, a task of a dataset has 5 classes with 5 support images and 15
    queries each. A dataset takes precedence over a run folder of the same name; write `./NAME` for
    the folder.

    Examples:

        alfa data show strokes
        alfa data show cub --split val --shot 1 --out cub.png
        alfa data show md-omniglot --varied
        alfa data show runs/cifar --dataset cub --episode 3 --out cub.png
    """
    from alfa.report.episode_figure import episode_figure

    opts.check_choices(split=split)
    path = out or Path(f"{Path(source).resolve().name}.png")
    opts.check_outputs([path], (".png",))
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    given = [opts.flag(name) for name, value in sizes.items() if value is not None]
    if varied and given:
        raise ConfigError(
            f"--varied samples the task sizes, so it cannot be combined with {' and '.join(given)}."
        )
    data = lazy.data
    options: dict[str, Any] = {"split": split, "index": episode}
    is_dataset = source in {*data.GENERATED_DATASETS, *data.prepared()}
    if not is_dataset and lazy.runs.RunFiles(source).exists:
        if varied:
            raise ConfigError("--varied applies only to datasets; omit it for a run.")
        run, learner, tasks = open_best(Path(source), dataset, size, **sizes)
        if not isinstance(tasks, data.FewShot | data.Varied):
            raise ConfigError(
                f"{source} was not trained on images; use `alfa plot fit` for curves."
            )
        options["seed"] = run.experiment.seed if seed is None else seed
        options |= _predictions(learner, tasks, **options)
    elif dataset is not None:
        raise ConfigError(f"--dataset applies only to runs, but {source} is not a run; omit it.")
    else:
        images = data.open_images(source, size=size)
        options["seed"] = seed or 0
        if varied:
            tasks = data.Varied([images], related=data.related_in(images))
        else:
            tasks = data.FewShot(images, way=way or 5, shot=shot or 5, num_query=num_query or 15)
    episode_figure(tasks, path, **options)
    typer.echo(f"written: {path}")


def _predictions(
    learner: lazy.learner.Learner,
    tasks: lazy.data.Tasks,
    *,
    split: lazy.data.Split,
    index: int,
    seed: int,
) -> dict[str, Any]:
    """Return a learner's predictions for the queries of an episode, and a note with the score."""
    import torch

    episode = tasks.episode(index, num_tasks=1, split=split, seed=seed)
    with torch.no_grad():
        outcome = learner(episode.to("cpu", learner.dtype), order="none")
    predictions = outcome.outputs[0].argmax(1)
    hits = int((predictions == episode.query_y[0]).sum())
    note = f"{hits} of {len(predictions)} correct after {learner.num_steps} steps"
    return {"predictions": predictions, "note": note}
