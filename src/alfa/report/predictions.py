"""Predictions of an adapted model for images, as a self-contained HTML page and as CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alfa.data.photos import printable
from alfa.report.output import csv_text, data_url, render_template

# Classes with a bar under an image, images on a page, and support images of each class.
_MOST_BARS, _MOST_SHOWN, _MOST_OF_CLASS = 3, 2_000, 40
# The first characters of a spreadsheet formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Prediction:
    """The predicted class of an image.

    Attributes:
        file: the name of the image.
        label: the predicted class.
        probabilities: of the classes, in their order.
        true: the true class; None if it is unknown.
        picture: a small PNG or JPEG file; empty if no page shows it.
    """

    file: str
    label: str
    probabilities: Sequence[float]
    true: str | None = None
    picture: bytes = b""

    @property
    def is_wrong(self) -> bool:
        return self.true is not None and self.true != self.label

    @property
    def probability(self) -> float:
        return max(self.probabilities)


def num_shown() -> tuple[int, int]:
    """How many images a page shows, and how many support images of each class."""
    return _MOST_SHOWN, _MOST_OF_CLASS


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would evaluate a cell instead of showing it."""
    return text.startswith(_FORMULA)


def predictions_csv(predictions: Sequence[Prediction], classes: Sequence[str]) -> str:
    """A line for each image: its file, its label, and the probability of every class.

    Probabilities have all their digits. A file whose name starts like a formula gets the prefix
    ``./``, which names the same file and is not a formula; labels stay as they are.
    """
    header = ["file", "label", *(f"probability of {name}" for name in classes)]
    rows = (
        [f"./{p.file}" if is_formula(p.file) else p.file, p.label, *map(repr, p.probabilities)]
        for p in predictions
    )
    return csv_text(header, rows)


def render_predictions_page(
    predictions: Sequence[Prediction],
    *,
    support: Mapping[str, Sequence[tuple[str, bytes]]],
    title: str,
    facts: Mapping[str, str],
    notes: Sequence[str],
    command: str,
) -> str:
    """The HTML of the page.

    Args:
        predictions: the predictions, in the order of their files.
        support: the names and contents of the support images by class, in order.
        title: the title of the page.
        facts: other facts by name.
        notes: sentences about images that were skipped or changed.
        command: the command that makes this page.
    """
    classes = list(support)
    cards = [_card(p, classes, number) for number, p in enumerate(predictions[:_MOST_SHOWN])]
    return render_template(
        "predictions.html",
        filters={"source": _source, "plain": printable},
        title=title,
        facts=facts,
        notes=notes,
        support=support,
        most_of_class=_MOST_OF_CLASS,
        # The sort is stable: images of a class stay in order.
        cards=sorted(cards, key=lambda card: card["place"]),
        counts=Counter(p.label for p in predictions),
        num_images=len(predictions),
        num_known=sum(p.true is not None for p in predictions),
        num_wrong=sum(p.is_wrong for p in predictions),
        command=command,
    )


def _card(prediction: Prediction, classes: Sequence[str], number: int) -> dict[str, Any]:
    """The values of an image on the page: its most probable classes, and the true one."""
    ranked = sorted(range(len(classes)), key=lambda c: -prediction.probabilities[c])
    bars = ranked[:_MOST_BARS]
    if prediction.true is not None and (right := classes.index(prediction.true)) not in bars:
        bars[-1] = right
    return {
        "prediction": prediction,
        "number": number,
        "place": classes.index(prediction.label),
        "bars": [(classes[c], prediction.probabilities[c]) for c in bars],
    }


def _source(picture: bytes) -> str:
    return data_url(picture, "png" if picture.startswith(b"\x89PNG") else "jpeg")
