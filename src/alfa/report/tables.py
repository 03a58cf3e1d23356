"""Tables of published and measured figures, in every format that people paste them into."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
        plus_minus: a sentence on what the paper's plus-minus is; empty where it has none.
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

    @property
    def has_ours(self) -> bool:
        """Whether something of ours stands beside the published figures, be it no result."""
        return any(box.measured for box in self.boxes)

    @property
    def legend(self) -> str:
        """What the plus-minus is of both kinds of figures, where they stand side by side."""
        if not self.num_measured:
            return ""
        return " ".join(filter(None, (_OUR_PLUS_MINUS, self.plus_minus)))

    @property
    def verdicts(self) -> list[Verdict]:
        """Those that are in it."""
        found = {box.verdict for box in self.boxes}
        return [verdict for verdict in VERDICTS if verdict in found]


def _runs(values: Iterable[str]) -> list[tuple[str, int]]:
    return [(value, len(list(same))) for value, same in itertools.groupby(values)]


def _verdict_text(verdict: Verdict) -> str:
    return f"{verdict}: {VERDICTS[verdict]}"


def _column_titles(grid: Grid) -> list[str]:
    return [", ".join(filter(None, column)) for column in grid.columns]


def _row_title(row: Row) -> str:
    return ", ".join(filter(None, (row.title, row.group)))


def markdown(grid: Grid) -> str:
    """A heading, how to read it, and a table with our figures in bold before the published ones."""
    about = " ".join([grid.about, *grid.notes])
    lines = [f"## {grid.label}: {grid.title}", "", about, ""]
    if grid.has_ours:
        lines += [_markdown_legend(grid), ""]
    lines.append(f"| | {' | '.join(map(_markdown_text, _column_titles(grid)))} |")
    lines.append(f"| --- |{' --- |' * len(grid.columns)}")
    for row in grid.rows:
        cells = " | ".join(_markdown_box(box) for box in row.boxes)
        lines.append(f"| {_markdown_text(_row_title(row))} | {cells} |")
    return "\n".join(lines) + "\n"


def _markdown_legend(grid: Grid) -> str:
    sentences = ["Bold is ours, before what is published.", grid.legend]
    if grid.verdicts:
        meanings = "; ".join(map(_verdict_text, grid.verdicts))
        sentences.append(f"The verdict says how ours compares; {meanings}.")
    return " ".join(filter(None, sentences))


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_box(box: Box) -> str:
    published = f"{box.published}{' (quoted)' if box.is_quoted else ''}" if box.published else "-"
    if not box.measured:
        return published
    # What is quick says so in place of a figure.
    verdict = "" if box.verdict == "quick" else box.verdict
    told = "; ".join(filter(None, (verdict, *box.notes)))
    return f"**{box.measured}**{f' ({told})' if told else ''} / {published}"


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
    r"""A ``table`` for the package booktabs, with our figures above the published ones.

    What there is to know of a figure, such as how it compares, that it is quoted or was trained
    for less, stands below the table. Where nothing is ours, there are the published ones alone.
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
            title = _tex(row.title)
            if grid.has_ours:
                # Also where a row has none, or the paper's would pass for ours.
                body.append(f"    {title} & {' & '.join(_tex_ours(row, marks))} \\\\")
                title = r"\quad published"
            body.append(f"    {title} & {' & '.join(_tex_theirs(row, marks))} \\\\")
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
        *(rf"  \par\footnotesize $^{{{mark}}}$ {_tex(note)}" for note, mark in marks.known.items()),
        *([rf"  \par\footnotesize {_tex_signs(grid.legend)}"] if grid.legend else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex_ours(row: Row, marks: _Marks) -> list[str]:
    return [
        _tex_figure(
            box.measured,
            marks.of(*([_verdict_text(box.verdict)] if box.verdict else []), *box.notes),
        )
        for box in row.boxes
    ]


def _tex_theirs(row: Row, marks: _Marks) -> list[str]:
    return [
        _tex_figure(box.published, marks.of(*["quoted by the paper"] * box.is_quoted))
        for box in row.boxes
    ]


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
        return "--"
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


def _tex_signs(text: str) -> str:
    return _tex(text).replace("+-", r"$\pm$")
