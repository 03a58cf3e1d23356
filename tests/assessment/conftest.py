"""Normally distributed features, whose true accuracy is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from alfa.assessment import HeldOut, cross_validate, stratified_folds


@dataclass
class Photos:
    """Training photos and many test photos, classified by the distance to the class means."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    def logits(self, train: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return three times the negative squared distances to the means of training photos."""
        labels = range(self.y.max() + 1)
        means = np.stack([self.x[train][self.y[train] == label].mean(0) for label in labels])
        # |x|^2 is the same for all classes.
        return 3 * (2 * x @ means.T - (means**2).sum(axis=1))

    @property
    def test_logits(self) -> np.ndarray:
        return self.logits(np.arange(len(self.x)), self.test_x)

    @property
    def accuracy(self) -> float:
        hits = self.test_logits.argmax(axis=1) == self.test_y
        return float(np.mean([hits[self.test_y == label].mean() for label in np.unique(self.y)]))

    def held_out(self, **options) -> HeldOut:
        folds = stratified_folds(self.y, **options)
        return cross_validate(lambda train, test: self.logits(train, self.x[test]), folds)


@pytest.fixture
def make_photos() -> Callable[..., Photos]:
    """Draws the means of classes and photos around them; `distance` separates the classes."""

    def make(shots: Sequence[int], *, distance: float = 0.4, seed: int = 0, num_test: int = 200):
        rng = np.random.default_rng(seed)
        means = distance * rng.normal(size=(len(shots), 16))

        def draw(counts):
            y = np.repeat(np.arange(len(counts)), counts)
            return means[y] + rng.normal(size=(len(y), 16)), y

        return Photos(*draw(shots), *draw([num_test] * len(shots)))

    return make
