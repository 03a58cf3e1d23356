"""The page of `alfa demo`: one self-contained HTML file."""

from __future__ import annotations

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
    """Write the report of the demo, and ``tasks.png`` next to it.

    Args:
        path: the HTML file.
        runs: completed runs; the page shows the rates of the last one.
        published: the paper's figure for each run, by title.
        command: the command that makes this page.
    """
    tasks = plots.sinusoid_tasks(runs)
    num_steps, last, seed = runs[0].learner.num_steps, runs[-1], runs[0].result["config"]["seed"]
    rates = used_rates(last.learner, last.tasks, title=last.title, seed=seed)
    figures = [
        (
            "Learning an unseen curve",
            "Each method sees the dots and takes "
            f"{num_steps} gradient steps; lines are its prediction before and after every step.",
            tasks,
        ),
        (
            "Learning curves",
            "Mean squared error on validation tasks while the outer loop trains. The frame ends a "
            "little above the first values; a line that leaves it has met a task whose "
            "adaptation explodes.",
            plots.learning_curves(runs),
        ),
        (
            f"What {last.title} generates",
            "Learning rate alpha (top) and weight factor beta (bottom) for every layer and inner "
            "step: median over 200 unseen tasks, the band holds 90 % of them. A negative alpha "
            "climbs.",
            plot_bands(rates),
        ),
    ]
    html = render_template(
        "demo.html",
        runs=runs,
        seed=seed,
        published=published,
        figures=[
            (title, text, data_url(plots.figure_bytes(figure, "svg"), "svg+xml"))
            for title, text, figure in figures
        ],
        command=command,
    )
    write_atomic(path, html.encode())
    write_atomic(path.with_name("tasks.png"), plots.figure_bytes(tasks, "png"))
