"""One self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

import alfa
from alfa.report import plots
from alfa.report.html import html_environment
from alfa.report.load import TrainedRun
from alfa.report.rates import bands, used_rates
from alfa.train.files import write_atomic


@dataclass(frozen=True)
class Plot:
    """A figure of the page.

    Attributes:
        title: its heading.
        text: what it shows, in a sentence or two.
        figure: the figure.
    """

    title: str
    text: str
    figure: Figure

    @property
    def source(self) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(image(self.figure, 'svg')).decode()}"


def write_demo_page(
    path: Path, runs: Sequence[TrainedRun], *, published: dict[str, str], command: str
) -> None:
    """Write the demo's report, and beside it the picture of its tasks as PNG.

    Args:
        path: the HTML file.
        runs: completed runs; the last one's rates are shown.
        published: the paper's figure for each run, by title.
        command: what the reader can run to get this page.
    """
    tasks = plots.sinusoid_tasks(runs)
    num_steps, last = runs[0].learner.num_steps, runs[-1]
    figures = [
        Plot(
            "Learning an unseen curve",
            "Each method sees the dots and takes "
            f"{num_steps} gradient steps; lines are its prediction before and after every step.",
            tasks,
        ),
        Plot(
            "Learning curves",
            "Mean squared error on validation tasks while the outer loop trains. The frame ends a "
            "little above the first values; a line that leaves it has met a task whose "
            "adaptation explodes.",
            plots.learning_curves(runs),
        ),
        Plot(
            f"What {runs[-1].title} generates",
            "Learning rate alpha (top) and weight factor beta (bottom) for every layer and inner "
            "step: median over 200 unseen tasks, the band holds 90 % of them. A negative alpha "
            "climbs.",
            bands(
                used_rates(last.learner, last.tasks, title=last.title, seed=last.experiment.seed)
            ),
        ),
    ]
    environment = html_environment()
    html = environment.get_template("demo.html").render(
        runs=runs, published=published, figures=figures, command=command, version=alfa.__version__
    )
    write_atomic(path, html.encode())
    write_atomic(path.with_name("tasks.png"), image(tasks, "png"))


def image(figure: Figure, kind: str) -> bytes:
    """A figure as a file: ``"svg"``, ``"png"`` or ``"pdf"``."""
    buffer = io.BytesIO()
    # Without the date, the same figures give the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {"Software": None})
    with mpl.rc_context(plots.STYLE):
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()
