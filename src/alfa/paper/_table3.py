"""Table 3: first-order methods on Meta-Dataset, trained on ILSVRC-2012 only.

The settings are those that Meta-Dataset's code has for the two methods (Triantafillou et al.,
2020); the paper says of its own only that they are these.

And the supplement's Table D, which holds the last column against the best of Tian et al., 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alfa.paper._base import Cell, Figure, Line, Quoted, Table
from alfa.paper._grid import QUOTED, Entries

_METHODS = ("fo-maml", "alfa+fo-maml", "fo-proto-maml", "alfa+fo-proto-maml")
_SOURCES = {
    "ilsvrc": "ILSVRC",
    "omniglot": "Omniglot",
    "aircraft": "Aircraft",
    "birds": "Birds",
    "textures": "Textures",
    "quick-draw": "Quick Draw",
    "fungi": "Fungi",
    "vgg-flower": "VGG Flower",
    "traffic-sign": "Traffic Signs",
    "mscoco": "MSCOCO",
}
# What each source is called where it is prepared.
_DATASETS = {
    "ilsvrc": "md-ilsvrc",
    "omniglot": "md-omniglot",
    "aircraft": "md-aircraft",
    "birds": "md-birds",
    "textures": "md-textures",
    "quick-draw": "md-quickdraw",
    "fungi": "md-fungi",
    "vgg-flower": "md-flower",
    "traffic-sign": "md-traffic-sign",
    "mscoco": "md-mscoco",
}
_SIDE = 126
_PUBLISHED = {
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
_TIAN = {
    "ilsvrc": "61.48",
    "omniglot": "64.31",
    "aircraft": "62.32",
    "birds": "79.47",
    "textures": "79.28",
    "quick-draw": "60.84",
    "fungi": "48.53",
    "vgg-flower": "91.00",
    "traffic-sign": "76.33",
    "mscoco": "59.28",
}


def _experiment(method: str) -> dict[str, Any]:
    is_proto = "proto" in method
    alpha = 0.0054 if is_proto else 0.099
    rule: Mapping[str, Any] = {"name": "sgd", "learning_rate": alpha}
    if method.startswith("alfa"):
        rule = {"name": "alfa", "alpha": {"source": "generated", "start": alpha}}
    steps = {"num_steps": 6} if is_proto else {"num_steps": 10, "num_test_steps": 15}
    rates = (
        {
            "learning_rate": 3.63e-4,
            "rate_factor": 0.648,
            "rate_every": 2_500,
            "weight_decay": 1.37e-5,
        }
        if is_proto
        else {
            "learning_rate": 3.60e-4,
            "rate_factor": 0.835,
            "rate_every": 10_000,
            "weight_decay": 3.06e-4,
        }
    )
    return {
        "preset": "default",
        "tasks": {
            "name": "meta-dataset",
            "dataset": "md-ilsvrc",
            "size": _SIDE,
            "stored_size": _SIDE,
        },
        "model": {"name": "resnet18"},
        "init": {"name": "prototype-head" if is_proto else "zero-head"},
        "rule": rule,
        "inner": {**steps, "order": "first", "batch_norm": "inductive"},
        "outer": {"num_iterations": 75_000, "num_tasks": 1, "num_val_tasks": 60, **rates},
        "test": {"num_tasks": 600, "ensemble": 1},
    }


_ROWS = tuple(Line(key, title) for key, title in _SOURCES.items())
_ENTRIES: Entries = {
    (source, method): Cell(
        f"table3/ilsvrc-to-{source}/{method}/resnet18",
        Figure(text),
        f"ilsvrc-varied/{method}/resnet18",
        _experiment(method),
        judged_on=None if source == "ilsvrc" else _DATASETS[source],
        pretrained="ilsvrc-varied/resnet18",
    )
    for source, texts in _PUBLISHED.items()
    for method, text in zip(_METHODS, texts, strict=True)
}

TABLE_3 = Table(
    "table3",
    "Meta-Dataset, trained on ILSVRC-2012",
    "First-order MAML and Proto-MAML on tasks of any size from ten sources, with and without ALFA.",
    rows=_ROWS,
    columns=(
        Line("fo-maml", "alone", "fo-MAML"),
        Line("alfa+fo-maml", "+ ALFA", "fo-MAML"),
        Line("fo-proto-maml", "alone", "fo-Proto-MAML"),
        Line("alfa+fo-proto-maml", "+ ALFA", "fo-Proto-MAML"),
    ),
    entries=_ENTRIES,
)
TABLE_D = Table(
    "tableD",
    "Meta-Dataset, against the best of others",
    "The last column of Table 3 beside the best of Tian et al., 2020, a metric-based method.",
    rows=_ROWS,
    columns=(
        Line("alfa+fo-proto-maml", "ALFA + fo-Proto-MAML"),
        Line("tian", "Best of Tian et al.", QUOTED),
    ),
    entries={
        **{place: cell for place, cell in _ENTRIES.items() if place[1] == "alfa+fo-proto-maml"},
        **{(source, "tian"): Quoted(Figure(text)) for source, text in _TIAN.items()},
    },
)
