"""Choice between several heads by their losses on held-out photos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from alfa.assessment._calibration import Calibration
from alfa.assessment._held_out import HeldOut
from alfa.errors import ConfigError


@dataclass(frozen=True)
class Selection:
    """The result of `select`.

    Attributes:
        name: name of the chosen candidate.
        reason: explanation of the choice.
        losses: calibrated log loss of each candidate on the held-out photos.
    """

    name: str
    reason: str
    losses: Mapping[str, float]


def select(candidates: Mapping[str, HeldOut]) -> Selection:
    """Choose a candidate by the one-standard-error rule.

    The loss is the negative log-likelihood of the held-out photos after calibration, because it
    distinguishes candidates better than the accuracy of a few photos. The choice is the first
    candidate whose loss exceeds the lowest loss by at most one standard error of the difference
    between the two, photo by photo.

    Args:
        candidates: predictions of each candidate on the same folds, in order of preference: the
            default first, or the simplest.

    Examples:
        >>> import numpy as np
        >>> from alfa.assessment import cross_validate, select, stratified_folds
        >>> labels = np.repeat([0, 1], 10)
        >>> folds = stratified_folds(labels)
        >>> noise = np.random.default_rng(0).normal(size=(20, 2))
        >>> guess = cross_validate(lambda train, test: noise[test], folds)
        >>> good = cross_validate(lambda train, test: noise[test] + 5 * np.eye(2)[labels], folds)
        >>> select({"guess": guess, "good": good}).reason
        "the log loss of good is lower by 0.72 +- 0.10 than guess's"
    """
    _check(candidates)
    first = next(iter(candidates))
    held_out = candidates[first]
    if len(candidates) == 1:
        return Selection(first, f"{first} is the only candidate", {})
    if not len(held_out.assessed):
        reason = f"{first} is the default, because a comparison needs two photos of each class"
        return Selection(first, reason, {})
    per_photo = {
        name: Calibration.of(candidate).held_out_losses(candidate)
        for name, candidate in candidates.items()
    }
    losses = {name: float(held_out.photo_weights @ found) for name, found in per_photo.items()}
    best = min(losses, key=losses.__getitem__)
    for name in losses:
        excess, error = _mean_and_error(per_photo[name] - per_photo[best], held_out)
        if excess <= error:
            break
    return Selection(name, _reason(name, first, best, per_photo, held_out), losses)


def _reason(
    name: str, first: str, best: str, per_photo: Mapping[str, np.ndarray], held_out: HeldOut
) -> str:
    if name == best == first:
        return f"{first} has the lowest log loss"
    lower = best if name == first else name
    excess, error = _mean_and_error(per_photo[first] - per_photo[lower], held_out)
    difference = f"lower by {excess:.2f} +- {error:.2f}"
    if name == first:
        return (
            f"{first} is the default, and no log loss is lower by more than one standard error; "
            f"the log loss of {best} is {difference}"
        )
    return f"the log loss of {name} is {difference} than {first}'s"


def _mean_and_error(values: np.ndarray, held_out: HeldOut) -> tuple[float, float]:
    """Return the mean over photos and its standard error; classes weigh equally."""
    weights = held_out.photo_weights
    mean = float(weights @ values)
    variance = float(weights @ (values - mean) ** 2)
    return mean, math.sqrt(variance / (held_out.effective_size - 1))


def _check(candidates: Mapping[str, HeldOut]) -> None:
    if not candidates:
        raise ConfigError("`candidates` must contain at least one candidate.")
    folds = {id(candidate.folds) for candidate in candidates.values()}
    if len(folds) > 1:
        raise ConfigError(
            "`candidates` must be predictions on the same folds; call `stratified_folds` once."
        )
