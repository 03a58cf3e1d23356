"""Predictions for labeled photos by classifiers that did not train on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alfa.assessment._folds import Folds
from alfa.errors import ConfigError

FitPredict = Callable[[np.ndarray, np.ndarray], Any]
"""Function of training photos and test photos, as indices, that returns ``[test photo, ...]``."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for photos by classifiers that did not train on them.

    A *row* is one prediction; repeated folds predict each photo several times.

    Attributes:
        folds: the folds.
        photos: photo of each row.
        logits: logits of each row, ``[row, class]``.
        train_share: mean share of a held-out photo's class that its classifier trained on.
        growth: spread of the full classifier's logits, relative to the spread of the folds' logits;
            each on its own training photos. The full classifier trains on all photos.
        spread: spread of the full classifier's logits on its training photos.
    """

    folds: Folds
    photos: np.ndarray
    logits: np.ndarray
    train_share: float
    growth: float
    spread: float

    @property
    def labels(self) -> np.ndarray:
        """Class of each row."""
        return np.asarray(self.folds.labels[self.photos])

    @property
    def num_classes(self) -> int:
        return self.folds.num_classes

    @cached_property
    def assessed(self) -> np.ndarray:
        """Indices of the photos that were held out."""
        return np.unique(self.photos)

    @cached_property
    def photo_weights(self) -> np.ndarray:
        """Weights of the assessed photos; their sum is 1, and classes weigh equally."""
        labels = self.folds.labels[self.assessed]
        return np.asarray(1 / (np.bincount(labels)[labels] * len(np.unique(labels))))

    @cached_property
    def row_weights(self) -> np.ndarray:
        """Weights of the rows; their sum is 1, and classes weigh equally."""
        numbers = np.searchsorted(self.assessed, self.photos)
        return (self.photo_weights / np.bincount(numbers))[numbers]

    @cached_property
    def effective_size(self) -> float:
        """Number of photos that would be as informative if every class had the same number.

        This is k^2 / sum_c 1 / n_c for k classes with n_c photos, or groups of photos, each.
        """
        labels, groups = self.folds.labels[self.assessed], self.folds.groups[self.assessed]
        counts = [len(np.unique(groups[labels == label])) for label in np.unique(labels)]
        return len(counts) ** 2 / float(np.sum(1 / np.array(counts))) if counts else 0.0

    @cached_property
    def hits(self) -> np.ndarray:
        """Share of correct predictions for each assessed photo."""
        return self.per_photo(self.logits.argmax(1) == self.labels)

    @property
    def class_accuracies(self) -> list[float | None]:
        """Share of correct predictions for each class; None if none of its photos was held out."""
        labels = self.folds.labels[self.assessed]
        found = [self.hits[labels == label] for label in range(self.num_classes)]
        return [float(hits.mean()) if len(hits) else None for hits in found]

    @property
    def predicted(self) -> np.ndarray:
        """Class of each assessed photo with the largest mean logit over its rows."""
        means = [self.per_photo(column) for column in self.logits.T]
        return np.asarray(np.argmax(means, axis=0))

    def per_photo(self, values: Any) -> np.ndarray:
        """Return the mean over the rows of each assessed photo."""
        numbers = np.searchsorted(self.assessed, self.photos)
        return np.bincount(numbers, values) / np.bincount(numbers)


def cross_validate(fit_predict: FitPredict, folds: Folds) -> HeldOut:
    """Predict each photo by classifiers that did not train on it.

    Args:
        fit_predict: function that trains a classifier on the first argument's photos, and returns
            its logits ``[photo, class]`` for the second argument's photos. It must classify each
            photo independently, because the second argument contains all photos. The number of
            calls is the number of folds, plus one with all photos as training set.
        folds: folds of the photos.

    Examples:
        >>> import numpy as np
        >>> from alfa.assessment import cross_validate, stratified_folds
        >>> x, labels = np.array([0.0, 0.1, 0.3, 1.0, 1.1, 1.3]), np.array([0, 0, 0, 1, 1, 1])
        >>> def nearest_mean(train, test):
        ...     means = [x[train][labels[train] == label].mean() for label in (0, 1)]
        ...     return -((x[test, None] - means) ** 2)
        >>> held_out = cross_validate(nearest_mean, stratified_folds(labels))
        >>> held_out.hits
        array([1., 1., 1., 1., 1., 1.])
    """
    everything = np.arange(folds.num_photos)
    spread = _spread(_logits(fit_predict, everything, folds))
    photos, logits, spreads = [], [], []
    for train, held_out in folds:
        found = _logits(fit_predict, train, folds)
        photos.append(held_out)
        logits.append(found[held_out])
        spreads.append(_spread(found[train]))
    if not photos:
        empty = np.empty((0, folds.num_classes))
        return HeldOut(folds, np.empty(0, dtype=int), empty, 1.0, 1.0, spread)
    mean = float(np.sqrt(np.mean(np.square(spreads))))
    growth = spread / mean if spread > 0 and mean > 0 else 1.0
    share = _train_share(folds)
    return HeldOut(folds, np.concatenate(photos), np.concatenate(logits), share, growth, spread)


def held_out_values(function: FitPredict, folds: Folds) -> np.ndarray:
    """Return values of the held-out photos, such as scores for `Rejection`, in order of the rows.

    Args:
        function: function of a fold's training photos and held-out photos that returns a value for
            each held-out photo.
        folds: folds of the photos.

    Examples:
        >>> from alfa.assessment import held_out_values, stratified_folds
        >>> folds = stratified_folds([0, 0, 1, 1], num_repeats=1)
        >>> held_out_values(lambda train, held_out: held_out / len(train), folds).shape
        (4,)
    """
    values = [np.asarray(function(train, held_out), dtype=float) for train, held_out in folds]
    for found, held_out in zip(values, folds.held_out, strict=True):
        if found.shape != held_out.shape:
            raise ConfigError(
                f"`function` must return a value for each of {len(held_out)} photos, got an array "
                f"of shape {list(found.shape)}."
            )
    return np.concatenate(values) if values else np.empty(0)


def _logits(fit_predict: FitPredict, train: np.ndarray, folds: Folds) -> np.ndarray:
    found = np.asarray(fit_predict(train, np.arange(folds.num_photos)), dtype=float)
    expected = (folds.num_photos, folds.num_classes)
    if found.shape != expected:
        raise ConfigError(
            f"`fit_predict` must return logits of shape {list(expected)}, got {list(found.shape)}."
        )
    if not np.isfinite(found).all():
        raise ConfigError(
            "`fit_predict` returned logits that are infinite or not a number; check the features "
            "of the photos."
        )
    return found


def _spread(logits: np.ndarray) -> float:
    """Return the standard deviation of the logits of a photo, averaged over photos."""
    return float(np.sqrt(logits.var(axis=1).mean()))


def _train_share(folds: Folds) -> float:
    sizes, shares = np.bincount(folds.labels), []
    for train, held_out in folds:
        kept = np.bincount(folds.labels[train], minlength=len(sizes)) / sizes
        shares += list(kept[np.unique(folds.labels[held_out])])
    return float(np.mean(shares))
