"""The paper's tables with the measured figures, as one self-contained HTML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from alfa.report.output import render_template
from alfa.report.tables import VERDICTS, Grid, Verdict


@dataclass(frozen=True)
class RunLine:
    """A line in the list of runs.

    Attributes:
        title: the model of the paper, or the folder's name.
        link: the folder.
        seed: the seed of the run.
        num_iterations: outer iterations.
        seconds: the duration of the training.
        figure: the result of the run's test, such as ``"69.12 +- 0.47"``.
        num_tasks: test tasks.
        note: such as "not complete".
    """

    title: str
    link: str
    seed: int
    num_iterations: int
    seconds: float
    figure: str
    num_tasks: int
    note: str = ""

    @property
    def rate(self) -> float:
        return self.num_iterations / self.seconds if self.seconds else 0.0


def render_tables_page(
    grids: Sequence[Grid],
    *,
    curves: Mapping[str, Markup],
    runs: Sequence[RunLine],
    problems: Sequence[str],
    command: str,
) -> str:
    """The HTML of the page.

    Args:
        grids: the tables.
        curves: learning curves by the names of tables.
        runs: all runs.
        problems: a sentence for each folder that could not be read.
        command: the command that makes this page.
    """
    boxes = [box for grid in grids for box in grid.boxes]
    counts: Counter[Verdict] = Counter(box.verdict for box in boxes)
    return render_template(
        "paper.html",
        filters={"signs": lambda text: text.replace("+-", "\u00b1"), "address": _address},
        grids=grids,
        curves=curves,
        runs=runs,
        problems=problems,
        counts={verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]},
        num_measured=sum(grid.num_measured for grid in grids),
        verdicts=VERDICTS,
        command=command,
    )


def _address(link: str) -> str:
    """A link in a page; names of folders need not be valid text."""
    if link.startswith("file://"):
        return link
    return quote(link.encode("utf-8", "surrogateescape"))
