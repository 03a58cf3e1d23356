"""The paper's tables with measured figures, as one self-contained HTML file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from alfa.report.output import render_template
from alfa.report.tables import VERDICTS, Grid, Verdict


@dataclass(frozen=True)
class RunLine:
    """A line in the list of runs."""

    title: str  # the paper's name of the model, or the name of the folder
    link: str
    seed: int
    num_iterations: int
    seconds: float  # duration of the training
    figure: str  # the test result, such as "69.12 +- 0.47"
    num_tasks: int  # of the test
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
    """Render the page.

    `curves` contains learning curves by the names of tables, `problems` an error message for each
    unreadable file or folder, and `command` is the command that writes this page.
    """
    counts: Counter[Verdict] = Counter(box.verdict for grid in grids for box in grid.boxes)
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
    """Quote a link; folder names may contain bytes that are not valid text."""
    if link.startswith("file://"):
        return link
    return quote(link.encode("utf-8", "surrogateescape"))
