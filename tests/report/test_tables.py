"""Tables in the formats that people paste them into."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from alfa.report.tables import VERDICTS, Box, Grid, Row, grids_csv, latex, markdown


@pytest.fixture
def grid() -> Grid:
    return Grid(
        name="table9",
        label="Table 9",
        title="Cats & dogs",
        about="Some pets.",
        columns=(("Pets", "1-shot"), ("Pets", "5-shot"), ("Wild", "5-shot")),
        rows=(
            Row(
                "4-CONV",
                "ALFA",
                (
                    Box("50.00 +- 0.50", "51.00 +- 0.60", "within", ("seeds 50.50, 51.50",)),
                    Box("60.00 +- 0.50", is_quoted=True),
                    Box(),
                ),
            ),
            Row("4-CONV", "100 % MAML", (Box("40.00"), Box("41.00"), Box("42.00"))),
            Row(
                "others",
                "LEO_1",
                (Box("1.00"), Box("2.00"), Box("9.00", "quick", "quick")),
                ("It is pretrained.", "It is wide."),
            ),
        ),
        notes=("A note.",),
        plus_minus="Theirs: 60.00 +- 0.50.",
    )


@pytest.fixture
def published(grid: Grid) -> Grid:
    """The same, before anything was run."""
    alone = [
        replace(row, boxes=tuple(Box(b.published, is_quoted=b.is_quoted) for b in row.boxes))
        for row in grid.rows
    ]
    return replace(grid, rows=tuple(alone))


def test_markdown_has_ours_before_theirs(grid: Grid) -> None:
    assert markdown(grid).splitlines() == [
        "## Table 9: Cats & dogs",
        "",
        "Some pets. A note.",
        "",
        "Our figures are bold, before the published ones. Our plus-minus is half of the 95 % "
        "interval of the mean over the test tasks of all seeds. Theirs: 60.00 +- 0.50. The verdict "
        "compares the two figures; within: differs from the published figure by no more than the "
        "choice of test tasks explains; quick: not a result: the run only checks that everything "
        "works.",
        "",
        "| | Pets, 1-shot | Pets, 5-shot | Wild, 5-shot |",
        "| --- | --- | --- | --- |",
        "| ALFA, 4-CONV | **51.00 +- 0.60** (within; seeds 50.50, 51.50) / 50.00 +- 0.50 "
        "| 60.00 +- 0.50 (quoted) | - |",
        "| 100 % MAML, 4-CONV | 40.00 | 41.00 | 42.00 |",
        "| LEO_1, others (1, 2) | 1.00 | 2.00 | **quick** / 9.00 |",
        "",
        "(1) It is pretrained. (2) It is wide.",
    ]


def test_comma_separated_values_have_a_line_for_every_place(grid: Grid) -> None:
    rows = list(csv.DictReader(io.StringIO(grids_csv([grid, grid]))))
    assert len(rows) == 18
    assert rows[0] == {
        "table": "table9",
        "row": "ALFA, 4-CONV",
        "column": "Pets, 1-shot",
        "published": "50.00 +- 0.50",
        "quoted": "no",
        "measured": "51.00 +- 0.60",
        "verdict": "within",
        "notes": "seeds 50.50, 51.50",
        "run": "",
        "footnotes": "",
    }
    assert rows[1]["quoted"] == "yes"
    assert rows[8]["footnotes"] == "It is pretrained. It is wide."


def test_latex_is_escaped_and_has_groups(grid: Grid) -> None:
    lines = [line.strip() for line in latex(grid).splitlines()]
    assert r"\caption{Cats \& dogs. Published figures are below ours.}" in lines
    assert r"& \multicolumn{2}{c}{Pets} & \multicolumn{1}{c}{Wild} \\" in lines
    assert r"\multicolumn{4}{l}{4-CONV} \\" in lines
    assert r"ALFA & $51.00 \pm 0.60^{a,b}$ & -- & -- \\" in lines
    assert r"\quad published & $50.00 \pm 0.50$ & $60.00 \pm 0.50^{c}$ & -- \\" in lines
    assert lines.count(r"\midrule") == 2
    assert r"LEO\_1$^{d,e}$ & -- & -- & \textit{quick}$^{f}$ \\" in lines
    # Notes on single figures and on all figures are below the table.
    assert lines[-8:-1] == [
        r"\par\footnotesize $^{a}$ within: differs from the published figure by no more than the "
        "choice of test tasks explains",
        r"\par\footnotesize $^{b}$ seeds 50.50, 51.50",
        r"\par\footnotesize $^{c}$ quoted by the paper",
        r"\par\footnotesize $^{d}$ It is pretrained.",
        r"\par\footnotesize $^{e}$ It is wide.",
        r"\par\footnotesize $^{f}$ quick: not a result: the run only checks that everything works",
        r"\par\footnotesize Our plus-minus is half of the 95 \% interval of the mean over the "
        r"test tasks of all seeds. Theirs: 60.00 $\pm$ 0.50.",
    ]


def test_latex_has_the_published_figures_nowhere_in_the_place_of_ours(grid: Grid) -> None:
    lines = [line.strip() for line in latex(grid).splitlines()]
    place = lines.index(r"100 \% MAML & -- & -- & -- \\")
    assert lines[place + 1] == r"\quad published & $40.00$ & $41.00$ & $42.00$ \\"
    assert sum(line.startswith(r"\quad published &") for line in lines) == len(grid.rows)


def test_where_nothing_is_ours_the_published_figures_stand_alone(published: Grid) -> None:
    lines = [line.strip() for line in latex(published).splitlines()]
    assert r"\caption{Cats \& dogs. Published figures.}" in lines
    assert r"100 \% MAML & $40.00$ & $41.00$ & $42.00$ \\" in lines
    assert r"ALFA & $50.00 \pm 0.50$ & $60.00 \pm 0.50^{a}$ & -- \\" in lines
    assert lines[-4:-1] == [
        r"\par\footnotesize $^{a}$ quoted by the paper",
        r"\par\footnotesize $^{b}$ It is pretrained.",
        r"\par\footnotesize $^{c}$ It is wide.",
    ]
    assert "Our plus-minus" not in markdown(published)
    assert "bold" not in markdown(published)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_is_said_and_explained(published: Grid, verdict) -> None:
    boxes = (Box("1.00", "quick" if verdict == "quick" else "2.00", verdict), Box(), Box())
    one = replace(published, rows=(*published.rows, Row("", "ours", boxes)))
    for text in (markdown(one), latex(one)):
        assert f"{verdict}: {VERDICTS[verdict]}" in text
        assert sum(f"{other}: {meaning}" in text for other, meaning in VERDICTS.items()) == 1


def test_what_is_only_quick_has_no_plus_minus(published: Grid) -> None:
    quick = Row("", "ours", (Box("1.00", "quick", "quick"), Box(), Box()))
    one = replace(published, rows=(quick,))
    assert "Our plus-minus" not in markdown(one) + latex(one)
    assert "Our figures are bold" in markdown(one)


def test_what_is_quick_is_not_measured(grid: Grid) -> None:
    assert (grid.num_measured, grid.num_quick) == (1, 1)
    assert grid.column_groups == [("Pets", 2), ("Wild", 1)]
    assert [(group, len(rows)) for group, rows in grid.row_groups] == [("4-CONV", 2), ("others", 1)]


def test_signs_of_the_formats_themselves_are_escaped(grid: Grid) -> None:
    odd = replace(grid, rows=(Row("a|b", r"x^2 \cite{~}", (Box("1.00"),) * 3),))
    assert r"| x^2 \cite{~}, a\|b | 1.00 |" in markdown(odd)
    told = r"x\textasciicircum{}2 \textbackslash{}cite\{\textasciitilde{}\} & $1.00$"
    assert told in latex(odd)


def test_a_mark_for_every_note(grid: Grid) -> None:
    boxes = tuple(Box("1.00", "2.00", "", (f"note {n}",)) for n in range(3))
    many = replace(grid, rows=tuple(Row("", str(n), boxes) for n in range(2)))
    assert latex(many).count(r"\par\footnotesize $^{") == 3
