"""The page of `alfa demo`: one self-contained HTML file."""

from collections.abc import Sequence
from pathlib import Path

from alfa._io import write_atomic
from alfa.report import plots
from alfa.report.load import TrainedRun
from alfa.report.output import data_url, render_template
from alfa.report.rates import plot_bands, used_rates


def write_demo_page(
    path: Path, runs: Sequence[TrainedRun], *, published: dict[str, str], command: str
) -> None:
    """Write the page of completed runs, and ``tasks.png`` next to it.

    `published` contains the paper's figures by the titles of runs. The page shows the rates of the
    last run, and ends with the command that writes it.
    """
    last, seed = runs[-1], runs[0].result["config"]["seed"]
    rates = used_rates(last.learner, last.tasks, title=last.title, seed=seed)
    figures = {
        "tasks": plots.sinusoid_tasks(runs),
        "curves": plots.learning_curves(runs),
        "rates": plot_bands(rates),
    }
    html = render_template(
        "demo.html",
        runs=runs,
        seed=seed,
        published=published,
        images={
            name: data_url(plots.figure_bytes(figure, "svg"), "svg+xml")
            for name, figure in figures.items()
        },
        command=command,
    )
    write_atomic(path, html.encode())
    write_atomic(path.with_name("tasks.png"), plots.figure_bytes(figures["tasks"], "png"))
