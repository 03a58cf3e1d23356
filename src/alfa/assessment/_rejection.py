"""Rejection of photos that belong to none of the classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from alfa.assessment._held_out import HeldOut
from alfa.errors import ConfigError

_MIN_PHOTOS = 3


@dataclass(frozen=True)
class Rejection:
    """A threshold below which a photo's score says "none of these".

    A score is higher for more familiar photos, for example the largest cosine similarity to a
    training photo. The threshold is the quantile of the scores of held-out photos that a new photo
    of a known class falls below with the false-alarm rate; the rank (n + 1) * rate accounts for the
    number of photos, n. If this rank is below 1, the threshold is the bound of Student's t
    distribution, and at most the lowest score. Classes weigh equally.

    The full classifier is familiar with more photos than the classifiers of the folds, so false
    alarms are somewhat rarer than the rate.

    Attributes:
        threshold: score of the most unfamiliar accepted photo; minus infinity accepts all photos,
            because fewer than 3 photos could be held out.
        false_alarm_rate: rate at which photos of known classes are rejected.

    Examples:
        >>> import numpy as np
        >>> from alfa.assessment import Rejection, cross_validate, held_out_values, stratified_folds
        >>> labels = np.repeat([0, 1], 10)
        >>> x = labels + np.random.default_rng(0).normal(size=20) / 4
        >>> def nearest(train, test):
        ...     return -np.abs(x[test, None] - x[train]).min(axis=1)
        >>> folds = stratified_folds(labels)
        >>> held_out = cross_validate(lambda train, test: np.c_[-x[test], x[test] - 1], folds)
        >>> rejection = Rejection.of(held_out_values(nearest, folds), held_out)
        >>> rejection.is_rejected([-0.02, -3.0])
        array([False,  True])
    """

    threshold: float
    false_alarm_rate: float

    @classmethod
    def of(cls, scores: Any, held_out: HeldOut, *, false_alarm_rate: float = 0.05) -> Rejection:
        """Derive the threshold from the scores of held-out photos.

        Args:
            scores: score of each row of `held_out`, from `held_out_values`.
            held_out: predictions for the held-out photos.
            false_alarm_rate: rate of rejected photos of known classes, between 0 and 0.5.
        """
        if not 0 < false_alarm_rate <= 0.5:
            raise ConfigError(
                f"`false_alarm_rate` must be above 0 and at most 0.5, got {false_alarm_rate}."
            )
        scores = _checked(scores)
        if scores.shape != held_out.photos.shape:
            raise ConfigError(
                f"`scores` must contain a score for each of {len(held_out.photos)} held-out "
                f"predictions, got an array of shape {list(scores.shape)}."
            )
        if len(held_out.assessed) < _MIN_PHOTOS:
            return cls(-math.inf, false_alarm_rate)
        values = held_out.per_photo(scores)
        threshold = _quantile(
            values, held_out.photo_weights, held_out.effective_size, false_alarm_rate
        )
        return cls(threshold, false_alarm_rate)

    def is_rejected(self, scores: Any) -> np.ndarray:
        """Return whether each photo belongs to none of the classes, given its score."""
        return np.asarray(_checked(scores) < self.threshold)


def _quantile(values: np.ndarray, weights: np.ndarray, size: float, rate: float) -> float:
    """Return the value that a new value falls below with a probability of about `rate`."""
    rank = rate * (size + 1)
    if rank < 1:
        mean = float(weights @ values)
        deviation = math.sqrt(float(weights @ (values - mean) ** 2) * size / (size - 1))
        bound = mean + float(stdtrit(size - 1, rate)) * deviation * math.sqrt(1 + 1 / size)
        return min(bound, float(values.min()))
    order = np.argsort(values, kind="stable")
    ranks = np.cumsum(weights[order]) * size
    return float(np.interp(rank, ranks, values[order]))


def _checked(scores: Any) -> np.ndarray:
    found = np.asarray(scores, dtype=float)
    if np.isnan(found).any():
        raise ConfigError("`scores` must not contain NaN; check the features of the photos.")
    return found
