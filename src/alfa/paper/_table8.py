"""Table 8: few-shot regression on sine curves."""

from __future__ import annotations

from typing import Any

from alfa.paper._base import Cell, Figure, Line, Table
from alfa.paper._methods import METHODS, TITLES

_NETWORKS = {"2x40": "2 hidden layers of 40 units", "3x80": "3 hidden layers of 80 units"}
_HIDDEN = {"2x40": [40, 40], "3x80": [80, 80, 80]}
_SHOTS = (5, 10, 20)
# 5, 10 and 20 shots with the smaller network, then with the larger one.
_PUBLISHED = {
    "maml": (
        *("1.24 +- 0.21", "0.75 +- 0.15", "0.49 +- 0.11"),
        *("0.84 +- 0.14", "0.56 +- 0.09", "0.33 +- 0.06"),
    ),
    "alfa+maml": (
        *("0.92 +- 0.19", "0.62 +- 0.16", "0.34 +- 0.07"),
        *("0.70 +- 0.15", "0.51 +- 0.10", "0.25 +- 0.06"),
    ),
}
_COLUMNS = tuple((network, shot) for network in _NETWORKS for shot in _SHOTS)


def _regression(method: str, *, shot: int, network: str) -> dict[str, Any]:
    return {
        "tasks": {"name": "sinusoid", "num_support": shot, "num_query": 100},
        "model": {"name": "mlp", "hidden": _HIDDEN[network]},
        **METHODS[method],
        # The paper gives neither the number of tasks nor of iterations. A task whose adaptation
        # explodes would spoil Adam's averages for long, or end the run.
        "outer": {
            "num_iterations": 30_000,
            "num_tasks": 4,
            "max_gradient_norm": 100.0,
            "max_skipped": 10,
            "num_val_tasks": 200,
        },
        "test": {"ensemble": 1},
    }


def _cell(method: str, network: str, shot: int, text: str) -> Cell:
    run = f"sinusoid-{shot}s/{method}/mlp-{network}"
    content = _regression(method, shot=shot, network=network)
    return Cell(f"table8/{run}", Figure(text), run, content)


TABLE_8 = Table(
    "table8",
    "Regression on sine curves, mean squared error",
    "A perceptron learns a curve from 5, 10 or 20 points; lower is better.",
    rows=tuple(Line(method, TITLES[method]) for method in _PUBLISHED),
    columns=tuple(
        Line(f"{shot}s-{network}", f"{shot} shots", _NETWORKS[network])
        for network, shot in _COLUMNS
    ),
    entries={
        (method, f"{shot}s-{network}"): _cell(method, network, shot, text)
        for method, texts in _PUBLISHED.items()
        for (network, shot), text in zip(_COLUMNS, texts, strict=True)
    },
)
