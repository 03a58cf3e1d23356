"""Tables of published and measured figures as Markdown, CSV, LaTeX, and an HTML page."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from markupsafe import Markup

from alfa.report.output import csv_text, render_template

Verdict = Literal["", "within", "above", "below", "shorter", "quick"]
VERDICTS: Mapping[Verdict, str] = {
    "within": "differs from the published figure by no more than the choice of test tasks explains",
    "above": "higher than published by more than the choice of test tasks explains",
    "below": "lower than published by more than the choice of test tasks explains",
    "shorter": "trained for fewer iterations than the cell specifies",
    "quick": "not a result: the run only checks that everything works",
}
_OUR_PLUS_MINUS = (
    "Our plus-minus is half of the 95 % interval of the mean over the test tasks of all seeds."
)


@dataclass(frozen=True)
class Box:
    """An entry of a table; texts are empty if they do not apply."""

    published: str = ""  # the paper's figure, such as "69.12 +- 0.47"
    measured: str = ""  # our figure
    verdict: Verdict = ""  # the comparison of both
    notes: tuple[str, ...] = ()  # a few words each
    is_quoted: bool = False  # the paper quotes its figure from other work
    link: str = ""  # the run folder


@dataclass(frozen=True)
class Row:
    """A row of a table, with its boxes from left to right."""

    group: str
    title: str
    boxes: tuple[Box, ...]
    footnotes: tuple[str, ...] = ()  # sentences

    @property
    def full_title(self) -> str:
        return ", ".join(filter(None, (self.title, self.group)))

    @property
    def has_results(self) -> bool:
        return any(box.measured and box.verdict != "quick" for box in self.boxes)


@dataclass(frozen=True)
class Grid:
    """A table of published and measured figures."""

    name: str  # such as "table1"
    label: str  # such as "Table 1"
    title: str
    about: str
    columns: tuple[tuple[str, str], ...]  # groups and titles
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # sentences about the whole table
    plus_minus: str = ""  # a sentence about the paper's plus-minus, if it has one

    @property
    def column_titles(self) -> list[str]:
        """The title and group of each column in one text."""
        return [", ".join(filter(None, column)) for column in self.columns]

    @property
    def column_groups(self) -> list[tuple[str, int]]:
        """The groups of columns and their sizes."""
        groups = itertools.groupby(self.columns, lambda column: column[0])
        return [(group, len(list(columns))) for group, columns in groups]

    @property
    def row_groups(self) -> list[tuple[str, list[Row]]]:
        groups = itertools.groupby(self.rows, lambda row: row.group)
        return [(group, list(rows)) for group, rows in groups]

    @property
    def footnotes(self) -> list[str]:
        """The footnotes of all rows, in the order of their numbers."""
        return list(dict.fromkeys(note for row in self.rows for note in row.footnotes))

    def numbers(self, row: Row) -> str:
        """The numbers of a row's footnotes, counted from 1 and separated by commas."""
        footnotes = self.footnotes
        return ", ".join(str(footnotes.index(note) + 1) for note in row.footnotes)

    @property
    def boxes(self) -> list[Box]:
        return [box for row in self.rows for box in row.boxes]

    @property
    def num_quick(self) -> int:
        return sum(box.verdict == "quick" for box in self.boxes)

    @property
    def num_measured(self) -> int:
        """The number of measured figures, without quick runs."""
        return sum(bool(box.measured) for box in self.boxes) - self.num_quick

    @property
    def has_ours(self) -> bool:
        """Whether a cell was run, quickly or in full."""
        return any(box.measured for box in self.boxes)

    @property
    def legend(self) -> str:
        """The meaning of both kinds of plus-minus, if a figure was measured."""
        if not self.num_measured:
            return ""
        return " ".join(filter(None, (_OUR_PLUS_MINUS, self.plus_minus)))


def _explain(verdict: Verdict) -> str:
    return f"{verdict}: {VERDICTS[verdict]}"


def markdown(grid: Grid) -> str:
    """Format a heading, a legend, and a table with our figures in bold before the paper's."""
    lines = [f"## {grid.label}: {grid.title}", "", " ".join([grid.about, *grid.notes]), ""]
    if grid.has_ours:
        found = {box.verdict for box in grid.boxes}
        meanings = "; ".join(_explain(verdict) for verdict in VERDICTS if verdict in found)
        verdicts = f"The verdict compares the two figures; {meanings}." if meanings else ""
        sentences = ("Our figures are bold, before the published ones.", grid.legend, verdicts)
        lines += [" ".join(filter(None, sentences)), ""]
    lines.append(f"| | {' | '.join(map(_markdown_text, grid.column_titles))} |")
    lines.append(f"| --- |{' --- |' * len(grid.columns)}")
    for row in grid.rows:
        cells = " | ".join(map(_markdown_box, row.boxes))
        numbers = f" ({numbers})" if (numbers := grid.numbers(row)) else ""
        lines.append(f"| {_markdown_text(row.full_title)}{numbers} | {cells} |")
    if grid.footnotes:
        notes = (f"({number}) {note}" for number, note in enumerate(grid.footnotes, start=1))
        lines += ["", " ".join(notes)]
    return "\n".join(lines) + "\n"


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_box(box: Box) -> str:
    published = f"{box.published}{' (quoted)' if box.is_quoted else ''}" if box.published else "-"
    if not box.measured:
        return published
    # The figure of a quick run is this word.
    verdict = "" if box.verdict == "quick" else box.verdict
    notes = "; ".join(filter(None, (verdict, *box.notes)))
    return f"**{box.measured}**{f' ({notes})' if notes else ''} / {published}"


def grids_csv(grids: Sequence[Grid]) -> str:
    """Format one line per box."""
    header = ["table", "row", "column", "published", "quoted"]
    header += ["measured", "verdict", "notes", "run", "footnotes"]
    rows = (
        (
            *(grid.name, row.full_title, column, box.published, "yes" if box.is_quoted else "no"),
            *(box.measured, box.verdict, "; ".join(box.notes), box.link, " ".join(row.footnotes)),
        )
        for grid in grids
        for row in grid.rows
        for column, box in zip(grid.column_titles, row.boxes, strict=True)
    )
    return csv_text(header, rows)


def latex(grid: Grid) -> str:
    r"""Format a ``table`` for the package booktabs, with our figures above the paper's.

    Notes on single figures, including verdicts, become footnotes of the table. A table without our
    figures contains only the published ones.
    """
    titles = " & ".join(_tex(title) for _, title in grid.columns)
    head = [f"    & {titles} \\\\"]
    if any(group for group, _ in grid.columns):
        spans = [rf"\multicolumn{{{n}}}{{c}}{{{_tex(group)}}}" for group, n in grid.column_groups]
        head.insert(0, f"    & {' & '.join(spans)} \\\\")
    footnotes: dict[str, str] = {}  # a letter for each note
    body: list[str] = []
    for group, rows in grid.row_groups:
        if body:
            body.append(r"    \midrule")
        if group:
            body.append(rf"    \multicolumn{{{len(grid.columns) + 1}}}{{l}}{{{_tex(group)}}} \\")
        for row in rows:
            body += _tex_row(row, footnotes, has_ours=grid.has_ours)
    published = "Published figures are below ours." if grid.has_ours else "Published figures."
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(grid.title)}. {published}}}",
        rf"  \label{{tab:{grid.name}}}",
        rf"  \begin{{tabular}}{{l{'c' * len(grid.columns)}}}",
        r"    \toprule",
        *head,
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        *(rf"  \par\footnotesize $^{{{mark}}}$ {_tex(note)}" for note, mark in footnotes.items()),
    ]
    if grid.legend:
        lines.append(r"  \par\footnotesize " + _tex(grid.legend).replace("+-", r"$\pm$"))
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _tex_row(row: Row, footnotes: dict[str, str], *, has_ours: bool) -> list[str]:
    """Format one line, or two if the table has our figures, so that every row has both."""
    lines, title = [], _tex(row.title) + _tex_marks(row.footnotes, footnotes)
    if has_ours:
        notes = [[*([_explain(b.verdict)] if b.verdict else []), *b.notes] for b in row.boxes]
        ours = (
            _tex_figure(b.measured, n, footnotes) for b, n in zip(row.boxes, notes, strict=True)
        )
        lines.append(f"    {title} & {' & '.join(ours)} \\\\")
        title = r"\quad published"
    theirs = (
        _tex_figure(box.published, ["quoted by the paper"] * box.is_quoted, footnotes)
        for box in row.boxes
    )
    return [*lines, f"    {title} & {' & '.join(theirs)} \\\\"]


def _tex_marks(notes: Sequence[str], footnotes: dict[str, str]) -> str:
    """Return the letters of notes as a superscript; new notes get the next letters."""
    marks = ",".join(footnotes.setdefault(note, _letters(len(footnotes))) for note in notes)
    return f"$^{{{marks}}}$" if marks else ""


def _tex_figure(text: str, notes: Sequence[str], footnotes: dict[str, str]) -> str:
    marks = _tex_marks(notes, footnotes).strip("$")
    if not text:
        return "--"
    if not text[0].isdigit():
        return rf"\textit{{{_tex(text)}}}" + (f"${marks}$" if marks else "")
    return "$" + text.replace("+-", r"\pm") + marks + "$"


def _letters(number: int) -> str:
    """Return a, b, ..., z, aa, ab, ..."""
    first, last = divmod(number, 26)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)


_ESCAPES = str.maketrans(
    {
        **{c: f"\\{c}" for c in "%&#_${}"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
    }
)


def _tex(text: str) -> str:
    return text.translate(_ESCAPES)


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
