"""Table 5: what the generator sees of the learner."""

from __future__ import annotations

from alfa.paper._base import Cell, Figure, Line, Table
from alfa.paper._methods import METHODS, classification, setting

_TASKS = setting("miniimagenet", way=5, shot=5)
_INPUTS = {
    "weights-only": ("weight only", ["weights"], "68.47 +- 0.46"),
    "gradients-only": ("gradient only", ["gradients"], "67.98 +- 0.47"),
    "weights+gradients": ("weight + gradient (ALFA)", None, "69.12 +- 0.47"),
}


def _cell(key: str) -> Cell:
    _, state, text = _INPUTS[key]
    method = METHODS["alfa+maml"]
    # With both it is ALFA itself, the cell of Table 1.
    run = "alfa+maml" if state is None else f"alfa+maml-{key}"
    if state is not None:
        method = {**method, "rule": {**method["rule"], "state": state}}
    return Cell(
        f"table5/{_TASKS}/{key}/conv4",
        Figure(text),
        f"{_TASKS}/{run}/conv4",
        classification("miniimagenet", method, shot=5),
    )


TABLE_5 = Table(
    "table5",
    "The learning state, 5-way 5-shot miniImageNet",
    "ALFA + MAML with 4-CONV, whose generator reads the means of the weights, of the gradients, or "
    "of both.",
    rows=tuple(Line(key, title) for key, (title, _, _) in _INPUTS.items()),
    columns=(Line(_TASKS, "5-shot"),),
    entries={(key, _TASKS): _cell(key) for key in _INPUTS},
)
