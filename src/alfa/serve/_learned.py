"""Classifiers of sessions, and their assessment by cross-validation."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alfa.assessment import AccuracyEstimate, Calibration, HeldOut
from alfa.estimator import FewShotClassifier, PreparedImages
from alfa.serve._model import Model


@dataclass(frozen=True)
class Accuracy:
    """The estimated accuracy on new photos, with its 95 % interval."""

    value: float
    low: float
    high: float
    num_examples: int
    text: str


@dataclass(frozen=True)
class ClassAccuracy:
    """The share of correct predictions for held-out examples of a class."""

    class_id: str
    accuracy: float | None
    num_examples: int


@dataclass(frozen=True)
class Confused:
    """An example to which classifiers that did not learn it assign another class."""

    example_id: str
    true: str
    predicted: str


@dataclass(frozen=True, eq=False)
class Learned:
    """A classifier of a session.

    Attributes:
        classifier: the classifier; its labels are indices of `class_ids`.
        class_ids: the identifiers of its classes.
        support: the identifiers of the photos that it learned, and their classes.
        own_head: the name of the last layer of the model's run.
        seconds: duration of learning.
    """

    classifier: FewShotClassifier
    class_ids: list[str]
    support: list[tuple[str, str]]
    own_head: str
    seconds: float

    @classmethod
    def of(
        cls, model: Model, images: PreparedImages, support: Sequence[tuple[str, str]]
    ) -> Learned:
        """Learn from images; `support` has their identifiers and classes."""
        begin = time.perf_counter()
        class_ids = list(dict.fromkeys(class_id for _, class_id in support))
        labels = [class_ids.index(class_id) for _, class_id in support]
        classifier = model.fit(images, labels)
        seconds = time.perf_counter() - begin
        return cls(classifier, class_ids, list(support), model.head, seconds)

    # A classifier of two or more classes is cross-validated.

    @property
    def _held_out(self) -> HeldOut:
        assert self.classifier.held_out_ is not None
        return self.classifier.held_out_

    @property
    def _calibration(self) -> Calibration:
        assert self.classifier.calibration_ is not None
        return self.classifier.calibration_

    @property
    def _estimate(self) -> AccuracyEstimate:
        assert self.classifier.accuracy_ is not None
        return self.classifier.accuracy_

    @property
    def accuracy(self) -> Accuracy | None:
        own = self._estimate
        if own.accuracy is None or own.low is None or own.high is None:
            return None
        return Accuracy(own.accuracy, own.low, own.high, own.num_photos, str(own))

    @property
    def accuracy_reason(self) -> str | None:
        """Why there is no estimate of the accuracy."""
        return str(self._estimate) if self.accuracy is None else None

    @property
    def calibration_error(self) -> float | None:
        return self._calibration.error

    @property
    def head(self) -> str:
        return self.own_head if self.classifier.head_ == "trained" else self.classifier.head_

    @property
    def head_reason(self) -> str:
        return self.classifier.head_reason_ or "the only head of this model"

    @property
    def threshold(self) -> float | None:
        """The familiarity below which a photo belongs to none of the classes."""
        value = self.classifier.threshold_
        return value if math.isfinite(value) else None

    @property
    def false_alarm_rate(self) -> float:
        return self.classifier.false_alarm_rate

    @property
    def per_class(self) -> list[ClassAccuracy]:
        held_out = self._held_out
        labels, counts = held_out.folds.labels, np.bincount(held_out.folds.labels)
        found = []
        for number, class_id in enumerate(self.class_ids):
            hits = held_out.hits[labels[held_out.assessed] == number]
            share = float(hits.mean()) if len(hits) else None
            found.append(ClassAccuracy(class_id, share, int(counts[number])))
        return found

    @property
    def confused(self) -> list[Confused]:
        held_out, ids = self._held_out, self.class_ids
        if not len(held_out.assessed):
            return []
        rows = self._calibration.held_out_probabilities(held_out)
        means = np.stack([held_out.per_photo(column) for column in rows.T], axis=1)
        pairs = zip(held_out.assessed.tolist(), means.argmax(1).tolist(), strict=True)
        predicted = [(*self.support[index], ids[best]) for index, best in pairs]
        return [Confused(*each) for each in predicted if each[1] != each[2]]
