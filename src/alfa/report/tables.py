"""Tables of published and measured figures, in every format that people paste them into."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["", "within", "above", "below", "shorter", "quick"]


@dataclass(frozen=True)
class Box:
    """What stands in one place of a table.

    Attributes:
        published: the paper's figure, such as ``"69.12 +- 0.47"``; empty where it has none.
        measured: ours; empty where there is none.
        verdict: how ours compares; ``"shorter"`` where it was trained for less, ``"quick"`` where
            it is no result at all.
        notes: what else there is to know, a few words each.
        is_quoted: the paper quotes its figure from others.
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
    """A row of a table: what it stands under, its title, and its boxes from left to right."""

    group: str
    title: str
    boxes: tuple[Box, ...]

    @property
    def has_results(self) -> bool:
        return any(box.measured and box.verdict != "quick" for box in self.boxes)


@dataclass(frozen=True)
class Grid:
    """A table, laid out.

    Attributes:
        name: such as ``"table1"``.
        label: such as ``"Table 1"``.
        title: what it compares.
        about: what it shows.
        columns: for each column what it stands under, and its title.
        rows: from top to bottom.
        notes: sentences on the whole of it.
    """

    name: str
    label: str
    title: str
    about: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def column_groups(self) -> list[tuple[str, int]]:
        """What columns stand under, and how many of them."""
        return _runs(group for group, _ in self.columns)

    @property
    def row_groups(self) -> list[tuple[str, list[Row]]]:
        """Rows that stand together, under their group."""
        return [
            (group, list(rows)) for group, rows in itertools.groupby(self.rows, lambda r: r.group)
        ]

    @property
    def boxes(self) -> list[Box]:
        return [box for row in self.rows for box in row.boxes]

    @property
    def num_quick(self) -> int:
        return sum(box.verdict == "quick" for box in self.boxes)

    @property
    def num_measured(self) -> int:
        return sum(bool(box.measured) for box in self.boxes) - self.num_quick


def _runs(values: Iterable[str]) -> list[tuple[str, int]]:
    return [(value, len(list(same))) for value, same in itertools.groupby(values)]


def _column_titles(grid: Grid) -> list[str]:
    return [", ".join(filter(None, column)) for column in grid.columns]


def _row_title(row: Row) -> str:
    return ", ".join(filter(None, (row.title, row.group)))


def markdown(grid: Grid) -> str:
    """A heading, and a table with the measured figure in bold before the published one."""
    about = " ".join([grid.about, *grid.notes])
    lines = [f"## {grid.label}: {grid.title}", "", about, ""]
    lines.append(f"| | {' | '.join(map(_markdown_text, _column_titles(grid)))} |")
    lines.append(f"| --- |{' --- |' * len(grid.columns)}")
    for row in grid.rows:
        cells = " | ".join(_markdown_box(box) for box in row.boxes)
        lines.append(f"| {_markdown_text(_row_title(row))} | {cells} |")
    return "\n".join(lines) + "\n"


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_box(box: Box) -> str:
    published = f"{box.published}{' (quoted)' if box.is_quoted else ''}" if box.published else "-"
    if not box.measured:
        return published
    notes = f" ({'; '.join(box.notes)})" if box.notes else ""
    return f"**{box.measured}**{notes} / {published}"


def comma_separated(grids: Sequence[Grid]) -> str:
    """One line for every place of every table."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ["table", "row", "column", "published", "quoted", "measured", "verdict", "notes", "run"]
    )
    for grid in grids:
        for row in grid.rows:
            for column, box in zip(_column_titles(grid), row.boxes, strict=True):
                figures = [box.published, "yes" if box.is_quoted else "no", box.measured]
                told = [box.verdict, "; ".join(box.notes), box.link]
                writer.writerow([grid.name, _row_title(row), column, *figures, *told])
    return file.getvalue()


def latex(grid: Grid) -> str:
    r"""A ``table`` for the package booktabs, with the measured figure above the published one.

    What there is to know of a figure, such as that it is quoted or was trained for less, stands
    below the table.
    """
    titles = " & ".join(_tex(title) for _, title in grid.columns)
    head = [f"    & {titles} \\\\"]
    if any(group for group, _ in grid.columns):
        spans = [rf"\multicolumn{{{n}}}{{c}}{{{_tex(group)}}}" for group, n in grid.column_groups]
        head.insert(0, f"    & {' & '.join(spans)} \\\\")
    marks = _Marks()
    body: list[str] = []
    for group, rows in grid.row_groups:
        if body:
            body.append(r"    \midrule")
        if group:
            body.append(rf"    \multicolumn{{{len(grid.columns) + 1}}}{{l}}{{{_tex(group)}}} \\")
        for row in rows:
            ours = [_tex_figure(box.measured, marks.of(*box.notes)) for box in row.boxes]
            theirs = [
                _tex_figure(box.published, marks.of(*["quoted by the paper"] * box.is_quoted))
                or "--"
                for box in row.boxes
            ]
            if any(ours):
                body.append(f"    {_tex(row.title)} & {' & '.join(ours)} \\\\")
                body.append(f"    \\quad published & {' & '.join(theirs)} \\\\")
            else:
                body.append(f"    {_tex(row.title)} & {' & '.join(theirs)} \\\\")
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(grid.title)}. Below our figures those of the paper.}}",
        rf"  \label{{tab:{grid.name}}}",
        rf"  \begin{{tabular}}{{l{'c' * len(grid.columns)}}}",
        r"    \toprule",
        *head,
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        *(rf"  \par\footnotesize $^{{{mark}}}$ {_tex(note)}" for note, mark in marks.known.items()),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


class _Marks:
    """Letters for notes, the same one for the same note."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def of(self, *notes: str) -> str:
        found = []
        for note in notes:
            number = len(self.known)
            found.append(self.known.setdefault(note, _letters(number)))
        return ",".join(found)


def _letters(number: int) -> str:
    first, last = divmod(number, 26)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)


def _tex_figure(text: str, marks: str) -> str:
    if not text:
        return ""
    raised = rf"^{{{marks}}}" if marks else ""
    if not text[0].isdigit():
        return rf"\textit{{{_tex(text)}}}" + (f"${raised}$" if raised else "")
    return "$" + text.replace("+-", r"\pm") + raised + "$"


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
