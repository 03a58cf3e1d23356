"""Steps that `alfa adapt` and `alfa export` share."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from alfa.cli import lazy
from alfa.cli.show import print_list
from alfa.errors import AlfaWarning


def check_and_fit(
    classifier: lazy.estimator.FewShotClassifier,
    support: lazy.photos.Photos,
    *queries: lazy.photos.Photos,
    folder: Path,
    on_problem: str,
) -> list[str]:
    """Check all images, fit to the support set, and return alfa's warnings.

    The warnings are part of the result. Other warnings are issued again.
    """
    lazy.photos.check_photos(support, *queries, on_problem=on_problem)
    lazy.photos.check_num_classes(support, folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AlfaWarning)
        classifier.fit(support.pixels, support.labels)
    for warning in caught:
        if not issubclass(warning.category, AlfaWarning):
            where = warning.filename, warning.lineno
            warnings.warn_explicit(warning.message, warning.category, *where)
    return [str(each.message) for each in caught if issubclass(each.category, AlfaWarning)]


def print_notes(summary: dict[str, Any]) -> None:
    """Print all images that were skipped, and the first of the other notes."""
    print_list("skipped", summary["left_out"], limit=None)
    print_list("notes", summary["notes"], rest="the output of --json")
