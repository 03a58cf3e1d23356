"""Tables of published and measured figures as Markdown, CSV, and LaTeX."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from alfa.report.output import csv_text

Verdict = Literal["", "within", "above", "below", "shorter", "quick"]
VERDICTS: Mapping[Verdict, str] = {
    "within": "as published, but for what the choice of test tasks explains",
    "above": "higher than published by more than the choice of test tasks explains",
    "below": "lower than published by more than the choice of test tasks explains",
    "shorter": "trained for less than the cell asks for",
    "quick": "no result: it only shows that everything runs",
}
_OUR_PLUS_MINUS = (
    "Our plus-minus is half of the 95 % interval of the mean over the test tasks of all seeds."
)


@dataclass(frozen=True)
class Box:
    """One place of a table.

    Attributes:
        published: the paper's figure, such as ``"69.12 +- 0.47"``; empty if there is none.
        measured: our figure; empty if there is none.
        verdict: how our figure compares; ``"shorter"`` if it was trained for less, ``"quick"`` if
            it is not a result.
        notes: a few words each.
        is_quoted: the paper quotes its figure from other work.
        link: the run folder.
    """

    published: str = ""
    measured: str = ""
    verdict: Verdict = ""
    notes: tuple[str, ...] = ()
    is_quoted: bool = False
    link: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: its group, its title, and its boxes from left to right."""

    group: str
    title: str
    boxes: tuple[Box, ...]

    @property
    def full_title(self) -> str:
        return ", ".join(filter(None, (self.title, self.group)))

    @property
    def has_results(self) -> bool:
        return any(box.measured and box.verdict != "quick" for box in self.boxes)


@dataclass(frozen=True)
class Grid:
    """A table of published and measured figures.

    Attributes:
        name: such as ``"table1"``.
        label: such as ``"Table 1"``.
        title: what it compares.
        about: what it shows.
        columns: the group and title of each column.
        rows: from top to bottom.
        notes: sentences about the whole table.
        plus_minus: a sentence on the paper's plus-minus; empty if there is none.
    """

    name: str
    label: str
    title: str
    about: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    plus_minus: str = ""

    @property
    def column_titles(self) -> list[str]:
        """The group and title of each column in one text."""
        return [", ".join(filter(None, column)) for column in self.columns]

    @property
    def column_groups(self) -> list[tuple[str, int]]:
        """The groups of columns, and how many columns each has."""
        groups = itertools.groupby(self.columns, lambda column: column[0])
        return [(group, len(list(columns))) for group, columns in groups]

    @property
    def row_groups(self) -> list[tuple[str, list[Row]]]:
        """The groups of rows."""
        groups = itertools.groupby(self.rows, lambda row: row.group)
        return [(group, list(rows)) for group, rows in groups]

    @property
    def boxes(self) -> list[Box]:
        return [box for row in self.rows for box in row.boxes]

    @property
    def num_quick(self) -> int:
        return sum(box.verdict == "quick" for box in self.boxes)

    @property
    def num_measured(self) -> int:
        return sum(bool(box.measured) for box in self.boxes) - self.num_quick

    @property
    def has_ours(self) -> bool:
        """Whether any box has a figure of ours, including quick ones."""
        return any(box.measured for box in self.boxes)

    @property
    def legend(self) -> str:
        """The meaning of both kinds of plus-minus, if a figure was measured."""
        if not self.num_measured:
            return ""
        return " ".join(filter(None, (_OUR_PLUS_MINUS, self.plus_minus)))

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts that occur."""
        found = {box.verdict for box in self.boxes}
        return [verdict for verdict in VERDICTS if verdict in found]


def _explained(verdict: Verdict) -> str:
    return f"{verdict}: {VERDICTS[verdict]}"


def markdown(grid: Grid) -> str:
    """A heading, a legend, and a table with our figures in bold before the published ones."""
    about = " ".join([grid.about, *grid.notes])
    lines = [f"## {grid.label}: {grid.title}", "", about, ""]
    if grid.has_ours:
        lines += [_markdown_legend(grid), ""]
    lines.append(f"| | {' | '.join(map(_markdown_text, grid.column_titles))} |")
    lines.append(f"| --- |{' --- |' * len(grid.columns)}")
    for row in grid.rows:
        cells = " | ".join(_markdown_box(box) for box in row.boxes)
        lines.append(f"| {_markdown_text(row.full_title)} | {cells} |")
    return "\n".join(lines) + "\n"


def _markdown_legend(grid: Grid) -> str:
    sentences = ["Bold is ours, before what is published.", grid.legend]
    if grid.verdicts:
        meanings = "; ".join(map(_explained, grid.verdicts))
        sentences.append(f"The verdict says how ours compares; {meanings}.")
    return " ".join(filter(None, sentences))


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_box(box: Box) -> str:
    published = f"{box.published}{' (quoted)' if box.is_quoted else ''}" if box.published else "-"
    if not box.measured:
        return published
    # A quick run has this word in place of a figure.
    verdict = "" if box.verdict == "quick" else box.verdict
    notes = "; ".join(filter(None, (verdict, *box.notes)))
    return f"**{box.measured}**{f' ({notes})' if notes else ''} / {published}"


def grids_csv(grids: Sequence[Grid]) -> str:
    """One line for every place of every table."""
    header = (
        "table",
        "row",
        "column",
        "published",
        "quoted",
        "measured",
        "verdict",
        "notes",
        "run",
    )
    rows = (
        (
            *(grid.name, row.full_title, column, box.published, "yes" if box.is_quoted else "no"),
            *(box.measured, box.verdict, "; ".join(box.notes), box.link),
        )
        for grid in grids
        for row in grid.rows
        for column, box in zip(grid.column_titles, row.boxes, strict=True)
    )
    return csv_text(header, rows)


def latex(grid: Grid) -> str:
    r"""A ``table`` for the package booktabs, with our figures above the published ones.

    Notes on single figures, such as the verdict, are below the table. A table without figures of
    ours has the published ones alone.
    """
    titles = " & ".join(_tex(title) for _, title in grid.columns)
    head = [f"    & {titles} \\\\"]
    if any(group for group, _ in grid.columns):
        spans = [rf"\multicolumn{{{n}}}{{c}}{{{_tex(group)}}}" for group, n in grid.column_groups]
        head.insert(0, f"    & {' & '.join(spans)} \\\\")
    # A letter for each note.
    marks: dict[str, str] = {}
    body: list[str] = []
    for group, rows in grid.row_groups:
        if body:
            body.append(r"    \midrule")
        if group:
            body.append(rf"    \multicolumn{{{len(grid.columns) + 1}}}{{l}}{{{_tex(group)}}} \\")
        for row in rows:
            title = _tex(row.title)
            if grid.has_ours:
                # Also in rows without our figures, where the paper's would look like ours.
                ours = (_tex_figure(box.measured, _our_notes(box), marks) for box in row.boxes)
                body.append(f"    {title} & {' & '.join(ours)} \\\\")
                title = r"\quad published"
            theirs = (
                _tex_figure(box.published, ["quoted by the paper"] * box.is_quoted, marks)
                for box in row.boxes
            )
            body.append(f"    {title} & {' & '.join(theirs)} \\\\")
    below = "Below our figures those of the paper." if grid.has_ours else "Figures of the paper."
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(grid.title)}. {below}}}",
        rf"  \label{{tab:{grid.name}}}",
        rf"  \begin{{tabular}}{{l{'c' * len(grid.columns)}}}",
        r"    \toprule",
        *head,
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        *(rf"  \par\footnotesize $^{{{mark}}}$ {_tex(note)}" for note, mark in marks.items()),
    ]
    if grid.legend:
        lines.append(r"  \par\footnotesize " + _tex(grid.legend).replace("+-", r"$\pm$"))
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _our_notes(box: Box) -> list[str]:
    return [*([_explained(box.verdict)] if box.verdict else []), *box.notes]


def _tex_figure(text: str, notes: Sequence[str], marks: dict[str, str]) -> str:
    raised = ",".join(marks.setdefault(note, _letters(len(marks))) for note in notes)
    if not text:
        return "--"
    raised = rf"^{{{raised}}}" if raised else ""
    if not text[0].isdigit():
        return rf"\textit{{{_tex(text)}}}" + (f"${raised}$" if raised else "")
    return "$" + text.replace("+-", r"\pm") + raised + "$"


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
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
