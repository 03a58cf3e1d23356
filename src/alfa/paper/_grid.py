"""Tables of methods by datasets and shots, which Tables 1, B and C are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from alfa.paper._base import Cell, Entry, Figure, Line, Quoted
from alfa.paper._methods import BACKBONES, DATASETS, METHODS, TITLES, classification, setting

SHOTS = (1, 5)
QUOTED = "quoted from others"

Entries = dict[tuple[str, str], Entry]
Texts = Sequence[str | None]


def shot_columns(datasets: Sequence[str]) -> tuple[Line, ...]:
    """1- and 5-shot under each dataset."""
    return tuple(
        Line(setting(dataset, way=5, shot=shot), f"{shot}-shot", DATASETS[dataset])
        for dataset in datasets
        for shot in SHOTS
    )


def method_rows() -> tuple[Line, ...]:
    """All methods, first with one backbone and then with the other."""
    return tuple(
        Line(f"{method}/{backbone}", TITLES[method], title)
        for backbone, title in BACKBONES.items()
        for method in METHODS
    )


def method_entries(
    table: str,
    datasets: Sequence[str],
    published: Mapping[str, Sequence[str]],
    *,
    quoted: Collection[tuple[str, str]] = (),
) -> Entries:
    """A cell for every method, backbone, dataset and number of shots.

    Args:
        table: that they belong to.
        datasets: from left to right.
        published: by the keys of rows, the figures from left to right.
        quoted: rows and datasets whose figures the paper quotes.
    """
    entries: Entries = {}
    for row in method_rows():
        method, backbone = row.key.split("/")
        tasks = [(dataset, shot) for dataset in datasets for shot in SHOTS]
        for (dataset, shot), text in zip(tasks, published[row.key], strict=True):
            column = setting(dataset, way=5, shot=shot)
            run = f"{column}/{row.key}"
            entries[row.key, column] = Cell(
                f"{table}/{run}",
                Figure(text),
                run,
                classification(dataset, METHODS[method], shot=shot, backbone=backbone),
                quoted=(row.key, dataset) in quoted,
            )
    return entries


def quoted_rows(others: Mapping[str, Texts]) -> tuple[Line, ...]:
    """Rows of figures that the paper quotes, by title."""
    return tuple(Line(_key(title), title, QUOTED) for title in others)


def quoted_entries(columns: Sequence[Line], others: Mapping[str, Texts]) -> Entries:
    """Figures that the paper quotes; None is a dash."""
    return {
        (_key(title), column.key): Quoted(None if text is None else Figure(text))
        for title, texts in others.items()
        for column, text in zip(columns, texts, strict=True)
    }


def _key(title: str) -> str:
    return title.partition(",")[0].lower().replace(" ", "-")
