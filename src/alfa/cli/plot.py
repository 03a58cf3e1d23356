"""`alfa plot`: figures of trained runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from alfa._io import write_atomic
from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import meter, show_features
from alfa.cli.start import open_best
from alfa.errors import ConfigError, check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

app = typer.Typer(help="Plot trained runs.", no_args_is_help=True, rich_markup_mode="markdown")

Out = Annotated[Path, Option(help="Output file: .png, .svg, or .pdf.")]


@app.command()
def rates(
    run: opts.RunFolder,
    dataset: Annotated[list[str] | None, Option(help="Use another dataset; repeatable.")] = None,
    size: opts.Size = None,
    layer: Annotated[list[str] | None, Option(help="Only layers such as `conv4.*`.")] = None,
    zoom: Annotated[int, Option(min=1, help="Inner step to plot in a separate panel.")] = 1,
    num_tasks: Annotated[int, Option(min=1, help="Number of tasks to adapt to.")] = 200,
    out: Annotated[list[Path] | None, Option(help=".png, .svg, .pdf, or .csv; repeatable.")] = None,
) -> None:
    """Plot the learning rates and weight decay factors of every inner step and layer.

    With --dataset, the tasks come from other datasets, in one joint plot.

    Examples:

        alfa plot rates runs/alfa
        alfa plot rates runs/cifar --dataset cifar-fs --dataset omniglot --layer 'conv4.*'
        alfa plot rates runs/alfa --out rates.pdf --out rates.csv
    """
    from alfa.report.rates import plot_boxes, rates_csv, used_rates

    outputs = out or [Path("rates.png")]
    opts.check_outputs(outputs, (*opts.PLOT_FORMATS, ".csv"))
    found = []
    names: list[str | None] = list(dataset or ())
    for name in names or [None]:
        opened, learner, tasks = open_best(run, name, size)
        if learner.num_steps == 0:
            raise ConfigError(f"{run} has no inner steps, so there are no rates to plot.")
        if zoom > learner.num_steps:
            raise ConfigError(f"--zoom must be between 1 and {learner.num_steps}, got {zoom}.")
        own = opened.experiment.tasks
        datasets = own.options.get("dataset", own.name)
        title = name or (datasets if isinstance(datasets, str) else ", ".join(datasets))
        seed = opened.experiment.seed
        with meter(run.name) as shown:
            tasks.prepare("test", show_features(shown))
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
    runs: Annotated[list[Path], Argument(help="Regression runs; each is one row.")],
    num_tasks: Annotated[int, Option(min=1, help="Number of curves.")] = 3,
    first: Annotated[int, Option(min=0, help="Index of the first curve.")] = 0,
    out: Out = Path("fit.png"),
) -> None:
    """Plot how runs fit new curves, step by step.

    Examples:

        alfa plot fit runs/maml runs/alfa --num-tasks 4 --out fit.svg
    """
    from alfa.report import load, plots

    opts.check_outputs([out], opts.PLOT_FORMATS)
    loaded = [load.load_run(path) for path in runs]
    for path, found in zip(runs, loaded, strict=True):
        if not isinstance(found.tasks, lazy.data.Sinusoids):
            trained_on = found.result["config"]["tasks"]["name"]
            raise ConfigError(
                f"{path} was trained on {trained_on}, but `alfa plot fit` requires regression "
                "tasks; use `alfa data show` for images."
            )
    _save(plots.sinusoid_tasks(loaded, num_tasks=num_tasks, first=first), out)


@app.command()
def learning(
    runs: Annotated[list[Path], Argument(help="Run folders, complete or in training.")],
    metric: Annotated[
        str | None, Option(help="val_metric, val_accuracy, val_loss, or train_loss.")
    ] = None,
    out: Out = Path("learning.png"),
) -> None:
    """Plot the learning curves of one or more runs, also during training.

    The default metric is the first that all runs have.

    Examples:

        alfa plot learning runs/maml runs/alfa
        alfa plot learning runs/maml runs/alfa --metric train_loss --out losses.svg
    """
    from alfa.report.learning import METRICS, read_curves
    from alfa.report.plots import metric_curves

    opts.check_outputs([out], opts.PLOT_FORMATS)
    if metric is not None:
        check_choice("--metric", metric, METRICS)
    curves, chosen = read_curves(runs, metric=metric)
    shown = METRICS[chosen]
    _save(metric_curves(curves, title=shown.title, explodes=shown.explodes), out)


def _save(figure: Figure, path: Path) -> None:
    from alfa.report.plots import figure_bytes

    write_atomic(path, figure_bytes(figure, path.suffix.removeprefix(".")))
    typer.echo(f"written: {path}")
