"""Table A of the supplement: one or several devices.

The published code spreads the images of one task over the devices, each of which normalises its own
part. The images come class by class, so that every part has few classes, and the figures change.
The paper does not say how many devices there were; here there are two parts.
"""

from __future__ import annotations

from alfa.paper._base import Cell, Figure, Line, Table
from alfa.paper._methods import METHODS, TITLES, classification, setting

_TASKS = setting("miniimagenet", way=5, shot=5)
_NUM_PARTS = 2
_PUBLISHED = {
    "alfa+random": ("72.90 +- 0.44", "88.90 +- 0.31"),
    "maml": ("69.76 +- 0.46", "58.33 +- 0.49"),
    "alfa+maml": ("77.96 +- 0.41", "88.36 +- 0.32"),
    "maml+l2f": ("77.04 +- 0.42", "88.85 +- 0.31"),
    "alfa+maml+l2f": ("77.42 +- 0.42", "90.92 +- 0.29"),
}


def _cell(method: str, devices: str, text: str) -> Cell:
    content = classification("miniimagenet", METHODS[method], shot=5, backbone="resnet12")
    # On one device it is the cell of Table 1.
    run = f"{_TASKS}/{method}/resnet12"
    if devices == "multi":
        content["model"]["device_parts"] = _NUM_PARTS
        run = f"{_TASKS}/{method}-multi-device/resnet12"
    return Cell(f"tableA/{_TASKS}/{method}-{devices}/resnet12", Figure(text), run, content)


TABLE_A = Table(
    "tableA",
    "One or several devices, 5-way 5-shot miniImageNet",
    "What the published code measures with ResNet12 on one device, and on several, where it "
    "normalises each device's part of a task's images by itself.",
    rows=(Line("single", "Single-GPU"), Line("multi", "Multi-GPU")),
    columns=tuple(Line(method, TITLES[method]) for method in _PUBLISHED),
    entries={
        (devices, method): _cell(method, devices, text)
        for method, texts in _PUBLISHED.items()
        for devices, text in zip(("single", "multi"), texts, strict=True)
    },
)
