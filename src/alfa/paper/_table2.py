"""Table 2: models trained on miniImageNet, tested on CUB.

And the supplement's Table E, the same on Omniglot, FC100 and CIFAR-FS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alfa.paper._base import Cell, Figure, Line, Table
from alfa.paper._grid import Entries
from alfa.paper._methods import BACKBONES, DATASETS, METHODS, TITLES, classification, setting

_TRAINED = setting("miniimagenet", way=5, shot=5)
# There is no random initialization without ALFA here.
_METHODS = tuple(method for method in METHODS if method != "random")

_TO_CUB = {
    "alfa+random/conv4": ("56.72 +- 0.29",),
    "maml/conv4": ("52.70 +- 0.32",),
    "alfa+maml/conv4": ("58.35 +- 0.25",),
    "maml+l2f/conv4": ("60.89 +- 0.22",),
    "alfa+maml+l2f/conv4": ("61.82 +- 0.21",),
    "alfa+random/resnet12": ("60.13 +- 0.23",),
    "maml/resnet12": ("53.83 +- 0.32",),
    "alfa+maml/resnet12": ("61.22 +- 0.22",),
    "maml+l2f/resnet12": ("62.12 +- 0.21",),
    "alfa+maml+l2f/resnet12": ("63.24 +- 0.22",),
}
_TO_OTHERS = {
    "alfa+random/conv4": ("91.02 +- 0.29", "62.49 +- 0.48", "63.49 +- 0.45"),
    "maml/conv4": ("85.68 +- 0.35", "55.52 +- 0.50", "55.82 +- 0.50"),
    "alfa+maml/conv4": ("93.11 +- 0.23", "60.12 +- 0.49", "59.76 +- 0.49"),
    "maml+l2f/conv4": ("94.96 +- 0.22", "61.99 +- 0.49", "63.73 +- 0.48"),
    "alfa+maml+l2f/conv4": ("94.10 +- 0.24", "63.33 +- 0.45", "63.87 +- 0.48"),
}


def _entries(
    table: str, datasets: Sequence[str], published: Mapping[str, Sequence[str]]
) -> Entries:
    entries: Entries = {}
    for row, texts in published.items():
        method, backbone = row.split("/")
        # The model is that of Table 1, so it is trained once for all of them.
        content = classification("miniimagenet", METHODS[method], shot=5, backbone=backbone)
        for dataset, text in zip(datasets, texts, strict=True):
            entries[row, dataset] = Cell(
                f"{table}/{_TRAINED}-to-{dataset}/{row}",
                Figure(text),
                f"{_TRAINED}/{row}",
                content,
                judged_on=dataset,
            )
    return entries


def _columns(*datasets: str) -> tuple[Line, ...]:
    return tuple(Line(name, f"to {DATASETS[name]}", "miniImageNet") for name in datasets)


def _rows(*backbones: str) -> tuple[Line, ...]:
    return tuple(
        Line(f"{method}/{backbone}", TITLES[method], BACKBONES[backbone])
        for backbone in backbones
        for method in _METHODS
    )


TABLE_2 = Table(
    "table2",
    "5-way 5-shot, from miniImageNet to CUB",
    "The 5-shot models of Table 1, trained on miniImageNet and adapted to tasks of birds.",
    rows=_rows(*BACKBONES),
    columns=_columns("cub"),
    entries=_entries("table2", ("cub",), _TO_CUB),
)
TABLE_E = Table(
    "tableE",
    "5-way 5-shot, from miniImageNet to Omniglot, FC100 and CIFAR-FS",
    "The 4-CONV models of Table 1, adapted to tasks of characters and of small photographs, all "
    "brought to 84 x 84 pixels and three channels.",
    rows=_rows("conv4"),
    columns=_columns("omniglot", "fc100", "cifar-fs"),
    entries=_entries("tableE", ("omniglot", "fc100", "cifar-fs"), _TO_OTHERS),
)
