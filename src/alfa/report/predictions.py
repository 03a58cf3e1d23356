"""What an adapted model takes images for: one HTML file with the pictures, and one of commas."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import alfa
from alfa.data._pictures import plain
from alfa.report.html import html_environment

# Classes whose probabilities a picture has bars for, and pictures that a page has room for.
_MOST_BARS, _MOST_SHOWN, _MOST_OF_CLASS = 3, 2_000, 40
# What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Prediction:
    """What an image is taken for.

    Attributes:
        file: its name.
        label: the likeliest class.
        probabilities: of the classes, in their order.
        true: the class that it is known to be of; None where nobody says.
        picture: a small PNG or JPEG file; nothing where no page shows it.
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
    """How many images a page has room for, and how many of each class that it learned from.

    The first of them; no others need a picture.
    """
    return _MOST_SHOWN, _MOST_OF_CLASS


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute a cell instead of showing it."""
    return text.startswith(_FORMULA)


def comma_separated(predictions: Sequence[Prediction], classes: Sequence[str]) -> str:
    """A line for each image: its file, its label, and the probability of every class.

    The probabilities have all their digits. A file whose name begins like a formula is written
    with ``./`` before it, which is the same file for a program and no formula for a spreadsheet;
    there is no such way for labels, which stay as they are.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["file", "label", *(f"probability of {name}" for name in classes)])
    for prediction in predictions:
        file = f"./{prediction.file}" if is_formula(prediction.file) else prediction.file
        writer.writerow([file, prediction.label, *(repr(p) for p in prediction.probabilities)])
    return buffer.getvalue()


def render(
    predictions: Sequence[Prediction],
    *,
    support: Mapping[str, Sequence[tuple[str, bytes]]],
    title: str,
    facts: Mapping[str, str],
    notes: Sequence[str],
    command: str,
) -> str:
    """The page.

    Args:
        predictions: of the images, in the order of their files.
        support: for every class, in order, the files that it was learned from, with pictures.
        title: of the page.
        facts: what else to say, each with its name.
        notes: sentences about images that were left out or changed.
        command: that makes this page.
    """
    environment = html_environment()
    environment.filters |= {"source": _source, "plain": plain}
    classes = list(support)
    cards = [_card(p, classes, number) for number, p in enumerate(predictions[:_MOST_SHOWN])]
    return environment.get_template("predictions.html").render(
        title=title,
        facts=facts,
        notes=notes,
        support=support,
        most_of_class=_MOST_OF_CLASS,
        # Where it stays in this order, of those of a class, too.
        cards=sorted(cards, key=lambda card: card["place"]),
        counts=Counter(p.label for p in predictions),
        num_images=len(predictions),
        num_known=sum(p.true is not None for p in predictions),
        num_wrong=sum(p.is_wrong for p in predictions),
        command=command,
        version=alfa.__version__,
    )


def _card(prediction: Prediction, classes: Sequence[str], number: int) -> dict[str, Any]:
    """What the page shows of an image; its likeliest classes, and the right one among them."""
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
    """A picture that is part of the page."""
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
