"""The paper's tables with what was measured, as one HTML file that needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

import alfa
from alfa.report.html import html_environment
from alfa.report.tables import VERDICTS, Grid, Verdict


@dataclass(frozen=True)
class RunLine:
    """A run in the list of all runs.

    Attributes:
        title: what it is.
        link: its folder.
        seed: of everything.
        num_iterations: of training.
        seconds: of training.
        figure: its own test, such as ``"69.12 +- 0.47"``.
        num_tasks: of that test.
        note: such as that it is quick, or being trained.
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


def render(
    grids: Sequence[Grid],
    *,
    curves: Mapping[str, Markup],
    runs: Sequence[RunLine],
    problems: Sequence[str],
    command: str,
) -> str:
    """The page.

    Args:
        grids: the tables.
        curves: learning curves by the names of tables.
        runs: all runs.
        problems: a sentence for each folder that could not be read.
        command: that makes this page.
    """
    environment = html_environment()
    environment.filters["signs"] = lambda text: text.replace("+-", "\u00b1")
    environment.filters["address"] = _address
    boxes = [box for grid in grids for box in grid.boxes]
    counts: Counter[Verdict] = Counter(box.verdict for box in boxes)
    return environment.get_template("paper.html").render(
        grids=grids,
        curves=curves,
        runs=runs,
        problems=problems,
        counts={verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]},
        num_measured=sum(grid.num_measured for grid in grids),
        verdicts=VERDICTS,
        command=command,
        version=alfa.__version__,
    )


def _address(link: str) -> str:
    """A link as it stands in a page; names of folders need not be text."""
    if link.startswith("file://"):
        return link
    return quote(link.encode("utf-8", "surrogateescape"))
