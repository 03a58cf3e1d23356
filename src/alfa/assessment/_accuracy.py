"""Estimate of a classifier's accuracy from its own training photos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import betaincinv

from alfa.assessment._held_out import HeldOut

# benchmarks/photo_estimates.py tests these constants on other classes of photos.
# The odds of an error, relative to chance, fall with the number of photos to this power.
_LEARNING_EXPONENT = 0.7
# Held-out photos are less informative than independent test photos: each is a training photo of the
# others, and the classifiers of the folds differ from the full classifier.
_EFFICIENCY = 0.65


@dataclass(frozen=True)
class AccuracyEstimate:
    """Estimated accuracy on new photos of the full classifier, which trains on all photos.

    The estimate is the accuracy on held-out photos, in which classes weigh equally, corrected for
    the smaller training sets of the folds: the odds of an error, relative to guessing, decrease
    with the number of photos by a power law. The interval is Jeffreys' interval for 65 % of the
    number of photos, corrected likewise. If each class has only one photo, there is no estimate.

    Attributes:
        accuracy: estimated accuracy, or None.
        low: lower end of the 95 % interval, or None.
        high: upper end of the 95 % interval, or None.
        num_photos: number of photos that were held out.
        num_classes: number of classes.
        num_unknown: number of classes whose accuracy remains unknown, because they have only one
            photo or one group of near-duplicates.

    Examples:
        >>> import numpy as np
        >>> from alfa.assessment import AccuracyEstimate, cross_validate, stratified_folds
        >>> labels = np.repeat([0, 1], 10)
        >>> x = labels + np.random.default_rng(0).normal(size=20)
        >>> def nearest_mean(train, test):
        ...     means = [x[train][labels[train] == label].mean() for label in (0, 1)]
        ...     return -((x[test, None] - means) ** 2)
        >>> held_out = cross_validate(nearest_mean, stratified_folds(labels))
        >>> print(AccuracyEstimate.of(held_out))
        about 70 %, between 41 and 90 %, from your 20 photos
    """

    accuracy: float | None
    low: float | None
    high: float | None
    num_photos: int
    num_classes: int
    num_unknown: int

    level: ClassVar[float] = 0.95

    @classmethod
    def of(cls, held_out: HeldOut) -> AccuracyEstimate:
        """Estimate the accuracy from the predictions for held-out photos."""
        num_photos, num_classes = len(held_out.assessed), held_out.num_classes
        num_unknown = num_classes - len(np.unique(held_out.labels))
        if not num_photos:
            return cls(None, None, None, 0, num_classes, num_unknown)
        # Rounding errors must not separate the accuracy from 0 and 1.
        found = round(float(held_out.photo_weights @ held_out.hits), 12)
        ends = (found, *share_interval(found, _EFFICIENCY * held_out.effective_size, cls.level))
        accuracy, low, high = (_corrected(x, num_classes, held_out.train_share) for x in ends)
        return cls(accuracy, low, high, num_photos, num_classes, num_unknown)

    def __str__(self) -> str:
        if self.accuracy is None or self.low is None or self.high is None:
            return (
                "unknown, because an estimate needs at least two different photos of a class; with "
                "one photo per class, a classifier typically makes two to three times as many "
                "errors as with five"
            )
        # The interval is rounded outward.
        low, high = math.floor(100 * self.low), math.ceil(100 * self.high)
        text = (
            f"about {100 * self.accuracy:.0f} %, between {low} and {high} %, from your "
            f"{self.num_photos} photos"
        )
        if self.num_unknown:
            noun = "class" if self.num_unknown == 1 else "classes"
            text += f", without {self.num_unknown} {noun} with too few photos"
        return text


def share_interval(share: float, size: float, level: float = 0.95) -> tuple[float, float]:
    """Return Jeffreys' interval of a share of `size` independent photos.

    Examples:
        >>> low, high = share_interval(0.8, 20)
        >>> round(low, 2), round(high, 2)
        (0.59, 0.93)
    """
    right, wrong = share * size, (1 - share) * size
    tail = (1 - level) / 2
    low = float(betaincinv(right + 0.5, wrong + 0.5, tail)) if share > 0 else 0.0
    high = float(betaincinv(right + 0.5, wrong + 0.5, 1 - tail)) if share < 1 else 1.0
    return low, high


def _corrected(accuracy: float, num_classes: int, train_share: float) -> float:
    """Return the accuracy of the full classifier, given the accuracy of the folds.

    Odds of errors relative to guessing, e / (e_0 - e) with e_0 = 1 - 1 / num_classes, follow the
    learning curves of 2 to 40 classes better than errors do, and leave chance unchanged.
    """
    chance_error = 1 - 1 / num_classes
    error = 1 - accuracy
    if error >= chance_error:
        return accuracy
    odds = error / (chance_error - error) * train_share**_LEARNING_EXPONENT
    return float(1 - chance_error * odds / (1 + odds))
