"""Calibrated probabilities by temperature scaling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from alfa.assessment._held_out import HeldOut
from alfa.errors import ConfigError

# benchmarks/photo_estimates.py tests these constants on other classes of photos.
# Mean and standard deviation of log(spread / temperature) for held-out logits. Twenty-five photos
# decide little, so the prior matters; it also keeps the temperature of perfect and of hopeless
# predictions finite.
_PRIOR_MEAN, _PRIOR_STD = 0.8, 1.0
# The mean for the spread on the training photos: 1.6 - 0.18 log(num_classes)
_TRAINED_MEAN, _TRAINED_SLOPE = 1.6, 0.18


@dataclass(frozen=True)
class Calibration:
    """A temperature that turns logits into calibrated probabilities, softmax(logits / temperature).

    The temperature maximizes the likelihood of the held-out photos with a normal prior on its
    logarithm, relative to the spread of the logits. Classes weigh equally. The temperature accounts
    for the growth of the logits from the folds to the full classifier, which trains on all photos.
    If each class has only one photo, a rough temperature follows from the spread alone.

    Attributes:
        temperature: temperature of the full classifier.
        held_out_temperature: temperature of the classifiers of the folds.
        error: expected calibration error of the held-out photos; None without such photos. Few
            photos overestimate it, because a bin holds only a few of them.

    Examples:
        >>> import numpy as np
        >>> from alfa.assessment import Calibration, cross_validate, stratified_folds
        >>> labels = np.repeat([0, 1], 10)
        >>> x = labels + np.random.default_rng(0).normal(size=20)
        >>> def nearest_mean(train, test):
        ...     means = [x[train][labels[train] == label].mean() for label in (0, 1)]
        ...     return -((x[test, None] - means) ** 2)
        >>> calibration = Calibration.of(cross_validate(nearest_mean, stratified_folds(labels)))
        >>> calibration.probabilities([[-1.0, -0.5]]).round(2)
        array([[0.37, 0.63]])
    """

    temperature: float
    held_out_temperature: float
    error: float | None

    @classmethod
    def of(cls, held_out: HeldOut) -> Calibration:
        """Fit the temperature to the predictions for held-out photos."""
        if not len(held_out.photos):
            mean = _TRAINED_MEAN - _TRAINED_SLOPE * math.log(held_out.num_classes)
            temperature = held_out.spread / math.exp(mean) if held_out.spread > 0 else 1.0
            return cls(temperature, temperature, None)
        temperature = _fit(held_out)
        probabilities = softmax(held_out.logits / temperature, axis=1)
        error = calibration_error(probabilities, held_out.labels, weights=held_out.row_weights)
        return cls(temperature * held_out.growth, temperature, error)

    def probabilities(self, logits: Any) -> np.ndarray:
        """Return the probabilities of the full classifier."""
        return np.asarray(softmax(np.asarray(logits, dtype=float) / self.temperature, axis=-1))

    def held_out_probabilities(self, held_out: HeldOut) -> np.ndarray:
        """Return the probabilities of each row of the held-out photos."""
        return np.asarray(softmax(held_out.logits / self.held_out_temperature, axis=1))

    def held_out_losses(self, held_out: HeldOut) -> np.ndarray:
        """Return the negative log-likelihood of each assessed photo, averaged over its rows."""
        return held_out.per_photo(_losses(held_out, 1 / self.held_out_temperature))


def calibration_error(
    probabilities: Any, labels: Any, *, weights: Any = None, num_bins: int = 10
) -> float:
    """Return the expected calibration error of the most probable classes, in bins of equal width.

    Args:
        probabilities: ``[photo, class]``.
        labels: class of each photo.
        weights: weights of the photos; equal by default.
        num_bins: number of bins.

    Examples:
        >>> from alfa.assessment import calibration_error
        >>> round(calibration_error([[0.8, 0.2], [0.8, 0.2]], [0, 1]), 3)  # 0.8 instead of 0.5
        0.3
    """
    p, y = np.asarray(probabilities, dtype=float), np.asarray(labels)
    if p.ndim != 2 or len(p) != len(y) or not len(p):
        raise ConfigError(
            f"`probabilities` must have a row for each of {len(y)} photos and a column for each "
            f"class, got shape {list(p.shape)}."
        )
    w = np.full(len(p), 1.0) if weights is None else np.asarray(weights, dtype=float)
    if w.shape != y.shape or not w.sum() > 0:
        raise ConfigError(f"`weights` must be {len(y)} numbers with a positive sum.")
    if num_bins < 1:
        raise ConfigError(f"`num_bins` must be at least 1, got {num_bins}.")
    confidence = p.max(axis=1)
    # Also NaN fails this test.
    if not ((p >= 0) & (p <= 1)).all():
        raise ConfigError("`probabilities` must be between 0 and 1.")
    excess = w * (confidence - (p.argmax(axis=1) == y))
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    return float(np.abs(np.bincount(bins, excess)).sum() / w.sum())


def _fit(held_out: HeldOut) -> float:
    logits = held_out.logits
    spread = float(np.sqrt(logits.var(axis=1).mean()))
    if spread == 0:
        return 1.0
    weights = held_out.row_weights * held_out.effective_size

    def loss(log_scale: float) -> float:
        """Return the negative logarithm of the posterior; the scale is spread / temperature."""
        fit = float(weights @ _losses(held_out, math.exp(log_scale) / spread))
        return fit + ((log_scale - _PRIOR_MEAN) / _PRIOR_STD) ** 2 / 2

    # The grid brackets the minimum, because a sum with the prior may have several.
    grid = np.linspace(_PRIOR_MEAN - 6, _PRIOR_MEAN + 6, 25)
    best = int(np.argmin([loss(point) for point in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    log_scale = minimize_scalar(loss, bounds=bounds, method="bounded").x
    return spread / math.exp(log_scale)


def _losses(held_out: HeldOut, scale: float) -> np.ndarray:
    rows = np.arange(len(held_out.photos))
    return -np.asarray(log_softmax(held_out.logits * scale, axis=1)[rows, held_out.labels])
