"""Steps that `alfa adapt` and `alfa export` share."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import typer

from alfa.errors import AlfaWarning

if TYPE_CHECKING:
    from alfa.data.photos import Photos
    from alfa.estimator import FewShotClassifier

# Notes that the terminal shows.
_MAX_NOTES = 5


def fit_and_collect_warnings(classifier: FewShotClassifier, learned: Photos) -> list[str]:
    """Fit to a support set; return our own warnings, which belong to the result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AlfaWarning)
        classifier.fit(learned.pixels, learned.labels)
    messages = []
    for warning in caught:
        if issubclass(warning.category, AlfaWarning):
            messages.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return messages


def print_notes(summary: dict[str, Any]) -> None:
    """Print all images that were left out, and the first of the other notes."""
    for title, lines, limit in (
        ("left out", summary["left_out"], None),
        ("worth knowing", summary["notes"], _MAX_NOTES),
    ):
        if lines:
            shown = "".join(f"\n  - {line}" for line in lines[:limit])
            rest = len(lines[limit:]) if limit else 0
            more = f"\n  and {rest} more, which --json lists" if rest else ""
            typer.echo(f"\n{title}: {len(lines)}{shown}{more}")
