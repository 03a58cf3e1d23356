"""Table 4: 20-way classification."""

from __future__ import annotations

from alfa.paper._base import Cell, Figure, Line, Table
from alfa.paper._methods import METHODS, TITLES, classification, setting

_PUBLISHED = {
    "maml": {1: "15.21 +- 0.36", 5: "18.23 +- 0.39"},
    "alfa+maml": {1: "22.03 +- 0.41", 5: "35.33 +- 0.48"},
}
_SETTINGS = {shot: setting("miniimagenet", way=20, shot=shot) for shot in (1, 5)}

TABLE_4 = Table(
    "table4",
    "20-way classification, miniImageNet",
    "Four times as many classes, 4-CONV: the lead of ALFA over MAML grows.",
    rows=tuple(Line(method, TITLES[method]) for method in _PUBLISHED),
    columns=tuple(Line(name, f"{shot}-shot") for shot, name in _SETTINGS.items()),
    entries={
        (method, _SETTINGS[shot]): Cell(
            f"table4/{_SETTINGS[shot]}/{method}/conv4",
            Figure(text),
            f"{_SETTINGS[shot]}/{method}/conv4",
            classification("miniimagenet", METHODS[method], way=20, shot=shot),
        )
        for method, figures in _PUBLISHED.items()
        for shot, text in figures.items()
    },
)
