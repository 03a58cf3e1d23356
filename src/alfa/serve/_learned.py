"""Classifiers of sessions, and their assessment by cross-validation."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alfa.assessment import AccuracyEstimate, HeldOut
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
        return None if self.classifier.calibration_ is None else self.classifier.calibration_.error

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
        found = self._held_out
        rows = zip(
            self.class_ids, found.class_accuracies, np.bincount(found.folds.labels), strict=True
        )
        return [ClassAccuracy(own, accuracy, int(count)) for own, accuracy, count in rows]

    @property
    def confused(self) -> list[Confused]:
        found = self._held_out
        rows = [
            (*self.support[index], self.class_ids[best])
            for index, best in zip(found.assessed, found.predicted, strict=True)
        ]
        return [Confused(*row) for row in rows if row[1] != row[2]]
