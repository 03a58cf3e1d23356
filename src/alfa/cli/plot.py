"""`alfa plot`: pictures of trained runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alfa.cli._options import PLOT_FORMATS, Size, TheRun, check_outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

app = typer.Typer(
    help="Draw what trained runs do.", no_args_is_help=True, rich_markup_mode="markdown"
)

Out = Annotated[Path, typer.Option(help="Ends in .png, .svg or .pdf.")]


@app.command()
def rates(
    run: TheRun,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Tasks of another dataset; repeat it to draw several in one plot."),
    ] = None,
    size: Size = None,
    layer: Annotated[
        list[str] | None, typer.Option(help="Only layers that match, such as `conv4.*`.")
    ] = None,
    zoom: Annotated[int, typer.Option(min=1, help="The step to draw in a separate panel.")] = 1,
    num_tasks: Annotated[int, typer.Option(min=1, help="Tasks to adapt to.")] = 200,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Ends in .png, .svg, .pdf or .csv; repeat it for several files."),
    ] = None,
) -> None:
    """Draw the learning rates and weight factors of every inner step and layer.

    Examples:

        alfa plot rates runs/alfa

        alfa plot rates runs/cifar --dataset cifar-fs --dataset omniglot --layer 'conv4.*'

        alfa plot rates runs/alfa --out rates.pdf --out rates.csv
    """
    from alfa._io import write_atomic
    from alfa.cli.start import open_best
    from alfa.errors import ConfigError
    from alfa.report.rates import plot_boxes, rates_csv, used_rates

    outputs = out or [Path("rates.png")]
    check_outputs(outputs, (*PLOT_FORMATS, ".csv"))
    found = []
    names: list[str | None] = list(dataset or ())
    for name in names or [None]:
        opened, learner, tasks = open_best(run, name, size)
        if zoom > learner.num_steps:
            raise ConfigError(f"--zoom is {zoom}, but the steps are 1 to {learner.num_steps}.")
        own = opened.experiment.tasks
        datasets = own.options.get("dataset", own.name)
        title = name or (datasets if isinstance(datasets, str) else ", ".join(datasets))
        seed = opened.experiment.seed
        used = used_rates(learner, tasks, title=title, num_tasks=num_tasks, seed=seed)
        found.append(used.only(layer) if layer else used)
    for path in outputs:
        if path.suffix == ".csv":
            write_atomic(path, rates_csv(found).encode())
            typer.echo(f"written: {path}")
        else:
            _save(plot_boxes(found, zoom=zoom), path)


@app.command()
def fit(
    runs: Annotated[list[Path], typer.Argument(help="Runs of regression, a row for each.")],
    num_tasks: Annotated[int, typer.Option(min=1, help="Curves to fit.")] = 3,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    out: Out = Path("fit.png"),
) -> None:
    """Draw how unseen curves are fitted, step by step.

    Examples:

        alfa plot fit runs/maml runs/alfa --num-tasks 4 --out fit.svg
    """
    from alfa.data import Sinusoids
    from alfa.errors import ConfigError
    from alfa.report.load import load_run
    from alfa.report.plots import sinusoid_tasks

    check_outputs([out], PLOT_FORMATS)
    loaded = [load_run(path) for path in runs]
    for path, found in zip(runs, loaded, strict=True):
        if not isinstance(found.tasks, Sinusoids):
            trained_on = found.result["config"]["tasks"]["name"]
            raise ConfigError(
                f"{path} was trained on {trained_on}, but only regression tasks can be drawn as "
                "curves; use `alfa data show` for images."
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
    out: Out = Path("learning.png"),
) -> None:
    """Draw the learning curves of one or more runs, also while they are trained.

    Examples:

        alfa plot learning runs/maml runs/alfa

        alfa plot learning runs/maml runs/alfa --metric train_loss --out losses.svg
    """
    from alfa.errors import check_choice
    from alfa.report.learning import METRICS, read_curves
    from alfa.report.plots import metric_curves

    check_outputs([out], PLOT_FORMATS)
    if metric is not None:
        check_choice("--metric", metric, METRICS)
    curves, chosen = read_curves(runs, metric=metric)
    shown = METRICS[chosen]
    _save(metric_curves(curves, title=shown.title, explodes=shown.explodes), out)


def _save(figure: Figure, path: Path) -> None:
    from alfa._io import write_atomic
    from alfa.report.plots import figure_bytes

    write_atomic(path, figure_bytes(figure, path.suffix.removeprefix(".")))
    typer.echo(f"written: {path}")
