"""Tables of methods by datasets: 1, 2, 3, and B to E."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from alfa.methods import METHODS
from alfa.paper._experiments import classification, meta_dataset, setting
from alfa.paper._table import Cell, Entries, Figure, Line, Quoted, Table, fill

DATASETS: Mapping[str, str] = {
    "miniimagenet": "miniImageNet",
    "tieredimagenet": "tieredImageNet",
    "fc100": "FC100",
    "cifar-fs": "CIFAR-FS",
    "cub": "CUB",
    "omniglot": "Omniglot",
}
_BACKBONES = {"conv4": "4-CONV", "resnet12": "ResNet12"}
# Dataset and shots of 5-way tasks.
_SETTINGS = {
    setting(dataset, shot=shot): (dataset, shot) for dataset, shot in product(DATASETS, (1, 5))
}
_MINI = setting("miniimagenet", shot=5)
_QUOTED = "quoted from others"

Texts = Sequence[str | None]


def _method_rows(published: Mapping[str, object]) -> tuple[Line, ...]:
    """Rows whose keys are a method and a backbone."""
    names = [row.split("/") for row in published]
    return tuple(
        Line(f"{method}/{backbone}", METHODS[method].title, _BACKBONES[backbone])
        for method, backbone in names
    )


def _shot_columns(*datasets: str) -> tuple[Line, ...]:
    return tuple(
        Line(key, f"{shot}-shot", DATASETS[dataset])
        for key, (dataset, shot) in _SETTINGS.items()
        if dataset in datasets
    )


def _quoted_rows(others: Mapping[str, Texts]) -> tuple[Line, ...]:
    return tuple(Line(_key(title), title, _QUOTED) for title in others)


def _quoted(others: Mapping[str, Texts], columns: Sequence[Line]) -> Entries:
    """Figures of other work, by title; None is a dash."""
    return {
        (_key(title), column.key): Quoted(None if text is None else Figure(text))
        for title, texts in others.items()
        for column, text in zip(columns, texts, strict=True)
    }


def _key(title: str) -> str:
    return title.partition(",")[0].lower().replace(" ", "-")


def _classified(table: str) -> Callable[[str, str, Figure], Cell]:
    """Cells of a method and backbone (row) on few-shot tasks (column)."""

    def cell(row: str, column: str, published: Figure) -> Cell:
        method, backbone = row.split("/")
        dataset, shot = _SETTINGS[column]
        content = classification(dataset, method, shot=shot, backbone=backbone)
        # The paper quotes these figures of MAML from Finn et al., 2017.
        quoted = (row, dataset) == ("maml/conv4", "miniimagenet")
        return Cell(f"{table}/{column}/{row}", published, f"{column}/{row}", content, quoted=quoted)

    return cell


# --- Tables 1, B, and C: six methods, and figures of other work

_TABLE_1 = {
    "random/conv4": ("24.85 +- 0.43", "31.09 +- 0.46", "26.55 +- 0.44", "33.82 +- 0.47"),
    "alfa+random/conv4": ("51.61 +- 0.50", "70.00 +- 0.46", "53.32 +- 0.50", "71.97 +- 0.44"),
    "maml/conv4": ("48.70 +- 1.75", "63.11 +- 0.91", "49.06 +- 0.50", "67.48 +- 0.47"),
    "alfa+maml/conv4": ("50.58 +- 0.51", "69.12 +- 0.47", "53.16 +- 0.49", "70.54 +- 0.46"),
    "maml+l2f/conv4": ("52.10 +- 0.50", "69.38 +- 0.46", "54.40 +- 0.50", "73.34 +- 0.44"),
    "alfa+maml+l2f/conv4": ("52.76 +- 0.52", "71.44 +- 0.45", "55.06 +- 0.50", "73.94 +- 0.43"),
    "random/resnet12": ("31.23 +- 0.46", "41.60 +- 0.49", "33.46 +- 0.47", "44.54 +- 0.50"),
    "alfa+random/resnet12": ("56.86 +- 0.50", "72.90 +- 0.44", "62.00 +- 0.47", "79.81 +- 0.40"),
    "maml/resnet12": ("58.37 +- 0.49", "69.76 +- 0.46", "58.58 +- 0.49", "71.24 +- 0.43"),
    "alfa+maml/resnet12": ("59.74 +- 0.49", "77.96 +- 0.41", "64.62 +- 0.49", "82.48 +- 0.38"),
    "maml+l2f/resnet12": ("59.71 +- 0.49", "77.04 +- 0.42", "64.04 +- 0.48", "81.13 +- 0.39"),
    "alfa+maml+l2f/resnet12": ("60.05 +- 0.49", "77.42 +- 0.42", "64.43 +- 0.49", "81.77 +- 0.39"),
}
_LATEST: Mapping[str, Texts] = {
    "LEO-trainval, WRN-28-10": ("61.76 +- 0.08", "77.59 +- 0.12", "66.33 +- 0.05", "81.44 +- 0.09"),
    "MetaOpt, ResNet12": ("62.64 +- 0.61", "78.63 +- 0.46", "65.99 +- 0.72", "81.56 +- 0.53"),
}
# In Table C only.
_EARLIER: Mapping[str, Texts] = {
    "Matching Networks, 4-CONV": ("43.56 +- 0.84", "55.31 +- 0.73", None, None),
    "Meta-Learning LSTM, 4-CONV": ("43.44 +- 0.77", "60.60 +- 0.71", None, None),
    "Prototypical Networks, 4-CONV": (
        *("49.42 +- 0.78", "68.20 +- 0.66", "53.31 +- 0.89", "72.69 +- 0.74"),
    ),
    "Relation Networks, 4-CONV of 64-96-128-256": (
        *("50.44 +- 0.82", "65.32 +- 0.70", "54.48 +- 0.93", "71.32 +- 0.78"),
    ),
    "Transductive Prop Nets, 4-CONV": (
        *("55.51 +- 0.99", "68.88 +- 0.92", "59.91 +- 0.94", "73.30 +- 0.75"),
    ),
    "SNAIL, ResNet12": ("55.71 +- 0.99", "68.88 +- 0.92", None, None),
    "AdaResNet, ResNet12": ("56.88 +- 0.62", "71.94 +- 0.57", None, None),
    "TADAM, ResNet12": ("58.50 +- 0.30", "76.70 +- 0.30", None, None),
    "Activation to Parameter, WRN-28-10": ("59.60 +- 0.41", "73.74 +- 0.19", None, None),
}
_COLUMNS_1 = _shot_columns("miniimagenet", "tieredimagenet")
_CELLS_1 = fill(_TABLE_1, _COLUMNS_1, _classified("table1"))
TABLE_1 = Table(
    "table1",
    "5-way classification, miniImageNet and tieredImageNet",
    "Three initializations, each adapted by plain gradient descent and by ALFA. ALFA lifts all of "
    "them, and with a random initialization that is never trained it is above MAML in all columns "
    "but one (ResNet12, miniImageNet, 1-shot).",
    rows=(*_method_rows(_TABLE_1), *_quoted_rows(_LATEST)),
    columns=_COLUMNS_1,
    entries=_CELLS_1 | _quoted(_LATEST, _COLUMNS_1),
)
TABLE_C = Table(
    "tableC",
    "Table 1, with more figures of others",
    "The same cells as Table 1, beside earlier methods whose figures the paper quotes.",
    rows=(*_method_rows(_TABLE_1), *_quoted_rows(_EARLIER), *_quoted_rows(_LATEST)),
    columns=_COLUMNS_1,
    entries=_CELLS_1 | _quoted(_EARLIER, _COLUMNS_1) | _quoted(_LATEST, _COLUMNS_1),
)

_TABLE_B = {
    "random/conv4": ("27.50 +- 0.45", "35.37 +- 0.48", "29.74 +- 0.46", "39.87 +- 0.49"),
    "alfa+random/conv4": ("38.20 +- 0.49", "52.98 +- 0.50", "60.56 +- 0.49", "75.43 +- 0.43"),
    "maml/conv4": ("36.67 +- 0.48", "49.38 +- 0.49", "56.80 +- 0.49", "74.97 +- 0.43"),
    "alfa+maml/conv4": ("37.99 +- 0.48", "53.01 +- 0.49", "59.96 +- 0.49", "76.79 +- 0.42"),
    "maml+l2f/conv4": ("38.96 +- 0.49", "53.23 +- 0.48", "60.35 +- 0.48", "76.76 +- 0.42"),
    "alfa+maml+l2f/conv4": ("38.50 +- 0.47", "53.20 +- 0.50", "60.36 +- 0.50", "76.60 +- 0.42"),
    "random/resnet12": ("32.26 +- 0.47", "42.00 +- 0.49", "36.86 +- 0.48", "49.46 +- 0.50"),
    "alfa+random/resnet12": ("40.57 +- 0.49", "53.19 +- 0.50", "64.14 +- 0.48", "78.11 +- 0.41"),
    "maml/resnet12": ("37.92 +- 0.48", "52.63 +- 0.50", "64.33 +- 0.48", "76.38 +- 0.42"),
    "alfa+maml/resnet12": ("41.46 +- 0.49", "55.82 +- 0.50", "66.79 +- 0.47", "83.62 +- 0.37"),
    "maml+l2f/resnet12": ("41.89 +- 0.47", "54.68 +- 0.50", "67.48 +- 0.46", "82.79 +- 0.38"),
    "alfa+maml+l2f/resnet12": ("42.37 +- 0.50", "55.23 +- 0.50", "68.25 +- 0.47", "82.98 +- 0.38"),
}
_OTHERS_B: Mapping[str, Texts] = {
    "Prototypical Networks, 4-CONV": ("35.3 +- 0.6", "48.6 +- 0.6", "55.5 +- 0.7", "72.0 +- 0.6"),
    "Relation Networks, 4-CONV of 64-96-128-256": (None, None, "55.0 +- 1.0", "69.3 +- 0.8"),
    "TADAM, ResNet12": ("40.1 +- 0.4", "56.1 +- 0.4", None, None),
    "MetaOpt, ResNet12": ("41.1 +- 0.6", "55.5 +- 0.6", "72.0 +- 0.7", "84.2 +- 0.5"),
}
_COLUMNS_B = _shot_columns("fc100", "cifar-fs")
TABLE_B = Table(
    "tableB",
    "5-way classification, FC100 and CIFAR-FS",
    "The methods of Table 1 on small images, 32 x 32, where the lead of ALFA is smaller.",
    rows=(*_method_rows(_TABLE_B), *_quoted_rows(_OTHERS_B)),
    columns=_COLUMNS_B,
    entries=fill(_TABLE_B, _COLUMNS_B, _classified("tableB")) | _quoted(_OTHERS_B, _COLUMNS_B),
)


# --- Tables 2 and E: the 5-shot models of Table 1, trained on miniImageNet, tested elsewhere

_TABLE_2 = {
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
_TABLE_E = {
    "alfa+random/conv4": ("91.02 +- 0.29", "62.49 +- 0.48", "63.49 +- 0.45"),
    "maml/conv4": ("85.68 +- 0.35", "55.52 +- 0.50", "55.82 +- 0.50"),
    "alfa+maml/conv4": ("93.11 +- 0.23", "60.12 +- 0.49", "59.76 +- 0.49"),
    "maml+l2f/conv4": ("94.96 +- 0.22", "61.99 +- 0.49", "63.73 +- 0.48"),
    "alfa+maml+l2f/conv4": ("94.10 +- 0.24", "63.33 +- 0.45", "63.87 +- 0.48"),
}


def _target_columns(*datasets: str) -> tuple[Line, ...]:
    return tuple(Line(name, f"to {DATASETS[name]}", "miniImageNet") for name in datasets)


def _transferred(table: str) -> Callable[[str, str, Figure], Cell]:
    """Cells of a method and backbone (row) that is tested on another dataset (column)."""

    def cell(row: str, column: str, published: Figure) -> Cell:
        method, backbone = row.split("/")
        return Cell(
            f"{table}/{_MINI}-to-{column}/{row}",
            published,
            f"{_MINI}/{row}",
            classification("miniimagenet", method, shot=5, backbone=backbone),
            test_dataset=column,
        )

    return cell


_COLUMNS_2 = _target_columns("cub")
_COLUMNS_E = _target_columns("omniglot", "fc100", "cifar-fs")
TABLE_2 = Table(
    "table2",
    "5-way 5-shot, from miniImageNet to CUB",
    "The 5-shot models of Table 1, trained on miniImageNet and adapted to tasks of birds.",
    rows=_method_rows(_TABLE_2),
    columns=_COLUMNS_2,
    entries=fill(_TABLE_2, _COLUMNS_2, _transferred("table2")),
)
TABLE_E = Table(
    "tableE",
    "5-way 5-shot, from miniImageNet to Omniglot, FC100 and CIFAR-FS",
    "The 4-CONV models of Table 1, adapted to tasks of characters and of small photographs, all "
    "brought to 84 x 84 pixels and three channels.",
    rows=_method_rows(_TABLE_E),
    columns=_COLUMNS_E,
    entries=fill(_TABLE_E, _COLUMNS_E, _transferred("tableE")),
)


# --- Tables 3 and D: Meta-Dataset, trained on ILSVRC-2012

# The title and dataset of each source.
_SOURCES = {
    "ilsvrc": ("ILSVRC", "md-ilsvrc"),
    "omniglot": ("Omniglot", "md-omniglot"),
    "aircraft": ("Aircraft", "md-aircraft"),
    "birds": ("Birds", "md-birds"),
    "textures": ("Textures", "md-textures"),
    "quick-draw": ("Quick Draw", "md-quickdraw"),
    "fungi": ("Fungi", "md-fungi"),
    "vgg-flower": ("VGG Flower", "md-flower"),
    "traffic-sign": ("Traffic Signs", "md-traffic-sign"),
    "mscoco": ("MSCOCO", "md-mscoco"),
}
_TABLE_3 = {
    "ilsvrc": ("45.51 +- 1.11", "51.09 +- 1.17", "49.53 +- 1.05", "52.80 +- 1.11"),
    "omniglot": ("55.55 +- 1.54", "67.89 +- 1.43", "63.37 +- 1.33", "61.87 +- 1.51"),
    "aircraft": ("56.24 +- 1.11", "66.34 +- 1.17", "55.95 +- 0.99", "63.43 +- 1.10"),
    "birds": ("63.61 +- 1.06", "67.67 +- 1.06", "68.66 +- 0.96", "69.75 +- 1.05"),
    "textures": ("68.04 +- 0.81", "65.34 +- 0.95", "66.49 +- 0.83", "70.78 +- 0.88"),
    "quick-draw": ("43.96 +- 1.29", "60.53 +- 1.13", "51.52 +- 1.00", "59.17 +- 1.16"),
    "fungi": ("32.10 +- 1.10", "37.41 +- 1.00", "39.96 +- 1.14", "41.49 +- 1.17"),
    "vgg-flower": ("81.74 +- 0.83", "84.28 +- 0.97", "87.15 +- 0.69", "85.96 +- 0.77"),
    "traffic-sign": ("50.93 +- 1.51", "60.86 +- 1.43", "48.83 +- 1.09", "60.78 +- 1.29"),
    "mscoco": ("35.30 +- 1.23", "40.05 +- 1.14", "43.74 +- 1.12", "48.11 +- 1.14"),
}
# The best of Tian et al., 2020, in the order of the sources.
_TIAN = ("61.48", "64.31", "62.32", "79.47", "79.28", "60.84", "48.53", "91.00", "76.33", "59.28")
_ROWS_3 = tuple(Line(key, title) for key, (title, _) in _SOURCES.items())
_COLUMNS_3 = (
    Line("fo-maml", "alone", "fo-MAML"),
    Line("alfa+fo-maml", "+ ALFA", "fo-MAML"),
    Line("fo-proto-maml", "alone", "fo-Proto-MAML"),
    Line("alfa+fo-proto-maml", "+ ALFA", "fo-Proto-MAML"),
)


def _cell_3(source: str, method: str, published: Figure) -> Cell:
    return Cell(
        f"table3/ilsvrc-to-{source}/{method}/resnet18",
        published,
        f"ilsvrc-varied/{method}/resnet18",
        meta_dataset(method),
        test_dataset=None if source == "ilsvrc" else _SOURCES[source][1],
        pretrained="ilsvrc-varied/resnet18",
    )


_CELLS_3 = fill(_TABLE_3, _COLUMNS_3, _cell_3)
TABLE_3 = Table(
    "table3",
    "Meta-Dataset, trained on ILSVRC-2012",
    "First-order MAML and Proto-MAML on tasks of any size from ten sources, with and without ALFA.",
    rows=_ROWS_3,
    columns=_COLUMNS_3,
    entries=_CELLS_3,
)
TABLE_D = Table(
    "tableD",
    "Meta-Dataset, against the best of others",
    "The last column of Table 3 beside the best of Tian et al., 2020, a metric-based method.",
    rows=_ROWS_3,
    columns=(
        Line("alfa+fo-proto-maml", "ALFA + fo-Proto-MAML"),
        Line("tian", "Best of Tian et al.", _QUOTED),
    ),
    entries={
        **{place: cell for place, cell in _CELLS_3.items() if place[1] == "alfa+fo-proto-maml"},
        **{
            (source, "tian"): Quoted(Figure(text))
            for source, text in zip(_SOURCES, _TIAN, strict=True)
        },
    },
)
