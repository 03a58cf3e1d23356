"""Table 7: the number of inner steps."""

from __future__ import annotations

from alfa.paper._base import Cell, Figure, Line, Table
from alfa.paper._methods import METHODS, TITLES, classification, setting

_TASKS = setting("miniimagenet", way=5, shot=5)
_PUBLISHED = {
    ("maml", 5): "63.11 +- 0.91",
    ("alfa+maml", 1): "69.48 +- 0.46",
    ("alfa+maml", 2): "69.13 +- 0.42",
    ("alfa+maml", 3): "68.67 +- 0.43",
    ("alfa+maml", 4): "69.67 +- 0.45",
    ("alfa+maml", 5): "69.12 +- 0.47",
}


def _cell(method: str, num_steps: int, text: str) -> Cell:
    # Five steps are the cells of Table 1.
    run = method if num_steps == 5 else f"{method}-{num_steps}-steps"
    return Cell(
        f"table7/{_TASKS}/{method}-step-{num_steps}/conv4",
        Figure(text),
        f"{_TASKS}/{run}/conv4",
        classification("miniimagenet", METHODS[method], shot=5, num_steps=num_steps),
        quoted=method == "maml",
    )


TABLE_7 = Table(
    "table7",
    "The number of inner steps, 5-way 5-shot miniImageNet",
    "ALFA + MAML with 4-CONV, trained and tested with one to five steps, beside MAML with five.",
    rows=(Line(_TASKS, "5-shot"),),
    columns=tuple(
        Line(f"{method}-step-{steps}", f"step {steps}", TITLES[method])
        for method, steps in _PUBLISHED
    ),
    entries={
        (_TASKS, f"{method}-step-{steps}"): _cell(method, steps, text)
        for (method, steps), text in _PUBLISHED.items()
    },
)
