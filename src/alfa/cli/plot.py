"""`alfa plot`: pictures of trained runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli.evaluate import Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from alfa.data import Tasks
    from alfa.inner import Learner

app = typer.Typer(
    help="Draw what trained runs do.", no_args_is_help=True, rich_markup_mode="markdown"
)
PICTURES = (".png", ".svg", ".pdf")

TheRun = Annotated[Path, typer.Argument(help="A run folder that `alfa train` made.")]
NumTasks = Annotated[int, typer.Option(min=1, help="Tasks to adapt to.")]
Dataset = Annotated[
    list[str] | None,
    typer.Option(help="Tasks of another dataset; several for several in one picture."),
]


@app.command()
def rates(
    run: TheRun,
    dataset: Dataset = None,
    size: Size = None,
    layer: Annotated[
        list[str] | None, typer.Option(help="Only layers like this, such as `conv4.*`.")
    ] = None,
    zoom: Annotated[int, typer.Option(min=1, help="The step with a panel of its own.")] = 1,
    num_tasks: NumTasks = 200,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Ends in .png, .svg, .pdf or .csv; several for several."),
    ] = None,
) -> None:
    """Draw the learning rates and weight factors of every inner step and layer.

    Examples:

        alfa plot rates runs/alfa

        alfa plot rates runs/cifar --dataset cifar-fs --dataset omniglot --layer 'conv4.*'

        alfa plot rates runs/alfa --out rates.pdf --out rates.csv
    """
    from alfa.errors import ConfigError
    from alfa.report.rates import boxes, comma_separated, used_rates
    from alfa.train.files import write_atomic

    outputs = out or [Path("rates.png")]
    check_outputs(outputs, (*PICTURES, ".csv"))
    found = []
    names: list[str | None] = list(dataset or ())
    for name in names or [None]:
        learner, tasks, title, seed = _reopened(run, name, size)
        if zoom > learner.num_steps:
            raise ConfigError(f"--zoom is {zoom}, but the steps are 1 to {learner.num_steps}.")
        used = used_rates(learner, tasks, title=title, num_tasks=num_tasks, seed=seed)
        found.append(used.only(layer) if layer else used)
    for path in outputs:
        if path.suffix == ".csv":
            write_atomic(path, comma_separated(found).encode())
            typer.echo(f"written: {path}")
        else:
            _save(boxes(found, zoom=zoom), path)


@app.command()
def fit(
    runs: Annotated[list[Path], typer.Argument(help="Runs of regression, a row for each.")],
    num_tasks: Annotated[int, typer.Option(min=1, help="Curves to fit.")] = 3,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    out: Annotated[Path, typer.Option(help="Ends in .png, .svg or .pdf.")] = Path("fit.png"),
) -> None:
    """Draw how unseen curves are fitted, step by step.

    Examples:

        alfa plot fit runs/maml runs/alfa --num-tasks 4 --out fit.svg
    """
    from alfa.data import Sinusoids
    from alfa.errors import ConfigError
    from alfa.report import load_run
    from alfa.report.plots import sinusoid_tasks

    check_outputs([out], PICTURES)
    loaded = [load_run(path) for path in runs]
    for path, found in zip(runs, loaded, strict=True):
        if not isinstance(found.tasks, Sinusoids):
            raise ConfigError(
                f"{path} was trained on {found.experiment.tasks.name}, but only curves can be "
                "drawn as such; use `alfa plot episode` for images."
            )
    _save(sinusoid_tasks(loaded, num_tasks=num_tasks, first=first), out)


@app.command()
def learning(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, complete or not.")],
    metric: Annotated[
        str | None,
        typer.Option(
            help="`val_accuracy`, `val_loss` or `train_loss`; by default the first that all have."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Ends in .png, .svg or .pdf.")] = Path("learning.png"),
) -> None:
    """Draw the learning curves of one or more runs, also while they are trained.

    Examples:

        alfa plot learning runs/maml runs/alfa

        alfa plot learning runs/maml runs/alfa --metric train_loss --out losses.svg
    """
    from alfa.errors import check_choice
    from alfa.report.learning import METRICS, read_curves
    from alfa.report.plots import metric_curves

    check_outputs([out], PICTURES)
    if metric is not None:
        check_choice("--metric", metric, METRICS)
    curves, chosen = read_curves(runs, metric=metric)
    shown = METRICS[chosen]
    _save(metric_curves(curves, title=shown.title, explodes=shown.explodes), out)


@app.command()
def episode(
    run: TheRun,
    dataset: Annotated[str | None, typer.Option(help="Tasks of another dataset.")] = None,
    size: Size = None,
    number: Annotated[int, typer.Option("--episode", min=0, help="Which episode.")] = 0,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    out: Annotated[Path, typer.Option(help="Ends in .png.")] = Path("episode.png"),
) -> None:
    """Draw the images of an episode, and what the adapted model takes the queries for.

    Examples:

        alfa plot episode runs/cifar --dataset cub --episode 3 --out cub.png
    """
    import torch

    from alfa.data import SPLITS, FewShot, Varied
    from alfa.errors import ConfigError, check_choice
    from alfa.report.sheet import contact_sheet

    check_outputs([out], (".png",))
    check_choice("--split", split, SPLITS)
    learner, tasks, _, seed = _reopened(run, dataset, size)
    if not isinstance(tasks, FewShot | Varied):
        raise ConfigError(f"{run} was not trained on images; use `alfa plot fit` for curves.")
    where = {"split": split, "seed": seed}
    drawn = tasks.episode(number, num_tasks=1, **where)  # type: ignore[arg-type]
    with torch.no_grad():
        outcome = learner(drawn.to("cpu", learner.dtype), order="none")
    guesses = outcome.outputs[0].argmax(1)
    hits = int((guesses == drawn.query_y[0]).sum())
    contact_sheet(
        tasks,
        out,
        index=number,
        predictions=guesses,
        note=f"{hits} of {len(guesses)} right after {learner.num_steps} steps",
        **where,  # type: ignore[arg-type]
    )
    typer.echo(f"written: {out}")


def _reopened(path: Path, dataset: str | None, size: int | None) -> tuple[Learner, Tasks, str, int]:
    """The best model of a run, tasks for it, what they are called, and the seed of its test."""
    from alfa.cli.evaluate import check_size
    from alfa.cli.start import set_up
    from alfa.report.load import load_best
    from alfa.train import Run

    check_size(size, dataset)
    run = Run(path)
    trained = run.experiment()
    set_up(trained, device="cpu", threads=None)
    own = trained.tasks.options.get("dataset")
    own = ", ".join(own) if isinstance(own, list) else own
    elsewhere = None if dataset == own and size is None else dataset
    learner, tasks = load_best(run, trained, dataset=elsewhere, size=size)
    return learner, tasks, dataset or own or trained.tasks.name, trained.seed


def check_outputs(outputs: list[Path], suffixes: tuple[str, ...]) -> None:
    """Raise if a picture is asked for in another format, or where nothing can be written."""
    from alfa.errors import ConfigError
    from alfa.train.files import check_writable

    for path in outputs:
        if path.suffix not in suffixes:
            raise ConfigError(f"--out is {path}, but must end in {', '.join(suffixes)}.")
        check_writable(path)


def _save(figure: Figure, path: Path) -> None:
    from alfa.report.page import image
    from alfa.train.files import write_atomic

    write_atomic(path, image(figure, path.suffix.removeprefix(".")))
    typer.echo(f"written: {path}")
