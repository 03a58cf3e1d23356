"""Predictions of an adapted model for images, as a self-contained HTML page and as CSV."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alfa.data.photos import printable
from alfa.report.output import csv_text, data_url, render_template

# Limits of the page: bars per image, images, and support images per class.
_MOST_BARS, MOST_SHOWN, MOST_OF_CLASS = 3, 2_000, 40
# Spreadsheets evaluate cells that start with one of these characters.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

NONE = "none of these"
"""The label of images that belong to none of the classes."""


@dataclass(frozen=True)
class Prediction:
    """The predicted class of an image."""

    file: str
    label: str  # the most probable class
    probabilities: Sequence[float]  # in the order of the classes
    true: str | None = None  # the true class; None if unknown
    picture: bytes = b""  # a small PNG or JPEG file; empty if no page shows it
    is_none: bool = False  # the image is unfamiliar, so it may belong to none of the classes

    @property
    def shown(self) -> str:
        """The class, or `NONE`."""
        return NONE if self.is_none else self.label

    @property
    def is_wrong(self) -> bool:
        return self.true is not None and self.true != self.label

    @property
    def probability(self) -> float:
        return max(self.probabilities)


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would evaluate the text as a formula."""
    return text.startswith(_FORMULA)


def predictions_csv(predictions: Sequence[Prediction], classes: Sequence[str]) -> str:
    """Format one row per image: file, label, and the probability of every class.

    Probabilities have full precision. File names that a spreadsheet would evaluate get the prefix
    ``./``; labels are unchanged.
    """
    header = ["file", "label", *(f"probability of {name}" for name in classes)]
    rows = (
        [f"./{p.file}" if is_formula(p.file) else p.file, p.shown, *map(repr, p.probabilities)]
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
    """Render the page.

    `support` contains the names and contents of the support images by class, `facts` other facts by
    name, and `notes` sentences about images that were skipped or changed. `command` is the command
    that writes this page.
    """
    classes = list(support)
    has_none = any(p.is_none for p in predictions)
    cards = [_card(p, classes, number) for number, p in enumerate(predictions[:MOST_SHOWN])]
    return render_template(
        "predictions.html",
        filters={"source": _source, "plain": printable},
        title=title,
        facts=facts,
        notes=notes,
        support=support,
        max_support=MOST_OF_CLASS,
        # The sort is stable: the images of a class keep their order.
        cards=sorted(cards, key=lambda card: card["class_number"]),
        labels=[*classes, *([NONE] if has_none else [])],
        counts=Counter(p.shown for p in predictions),
        num_images=len(predictions),
        num_known=sum(p.true is not None for p in predictions),
        num_wrong=sum(p.is_wrong for p in predictions),
        command=command,
    )


def _card(prediction: Prediction, classes: Sequence[str], number: int) -> dict[str, Any]:
    """Return the template values of an image; its bars include the true class."""
    bars = sorted(range(len(classes)), key=lambda c: -prediction.probabilities[c])[:_MOST_BARS]
    if prediction.true is not None and (true := classes.index(prediction.true)) not in bars:
        bars[-1] = true
    return {
        "prediction": prediction,
        "number": number,
        # Images of none of the classes come last.
        "class_number": [*classes, NONE].index(prediction.shown),
        "bars": [(classes[c], prediction.probabilities[c]) for c in bars],
    }


def _source(picture: bytes) -> str:
    return data_url(picture, "png" if picture.startswith(b"\x89PNG") else "jpeg")
