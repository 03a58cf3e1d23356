"""Table 1: six methods on miniImageNet and tieredImageNet.

And the supplement's Table C, which is Table 1 with more figures of others.
"""

from __future__ import annotations

from alfa.paper._base import Table
from alfa.paper._grid import (
    method_entries,
    method_rows,
    quoted_entries,
    quoted_rows,
    shot_columns,
)

_DATASETS = ("miniimagenet", "tieredimagenet")
_COLUMNS = shot_columns(_DATASETS)

_PUBLISHED = {
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
_LATEST = {
    "LEO-trainval, WRN-28-10": ("61.76 +- 0.08", "77.59 +- 0.12", "66.33 +- 0.05", "81.44 +- 0.09"),
    "MetaOpt, ResNet12": ("62.64 +- 0.61", "78.63 +- 0.46", "65.99 +- 0.72", "81.56 +- 0.53"),
}
# In Table C only, above the latest ones.
_EARLIER = {
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
# MAML's own figures are those of Finn et al., 2017.
_ENTRIES = method_entries("table1", _DATASETS, _PUBLISHED, quoted=[("maml/conv4", "miniimagenet")])

TABLE_1 = Table(
    "table1",
    "5-way classification, miniImageNet and tieredImageNet",
    "Three initializations, each adapted by plain gradient descent and by ALFA. ALFA lifts all of "
    "them, and with a random initialization that is never trained it is above MAML in all columns "
    "but one (ResNet12, miniImageNet, 1-shot).",
    rows=(*method_rows(), *quoted_rows(_LATEST)),
    columns=_COLUMNS,
    entries={**_ENTRIES, **quoted_entries(_COLUMNS, _LATEST)},
)
TABLE_C = Table(
    "tableC",
    "Table 1, with more figures of others",
    "The same cells as Table 1, beside earlier methods whose figures the paper quotes.",
    rows=(*method_rows(), *quoted_rows({**_EARLIER, **_LATEST})),
    columns=_COLUMNS,
    entries={**_ENTRIES, **quoted_entries(_COLUMNS, {**_EARLIER, **_LATEST})},
)
