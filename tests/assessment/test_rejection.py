"""Rejection of photos of none of the classes."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import HeldOut, Rejection, cross_validate, stratified_folds
from alfa.errors import ConfigError


def held_out_of(counts) -> HeldOut:
    labels = np.repeat(np.arange(len(counts)), counts)
    folds = stratified_folds(labels, num_repeats=1)
    return cross_validate(lambda train, test: np.eye(len(counts))[labels[test]], folds)


@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
@pytest.mark.parametrize(("count", "rate"), [(5, 0.05), (5, 0.1), (2, 0.1), (20, 0.05)])
def test_false_alarms_have_the_rate(draw, count, rate) -> None:
    rng, held_out = np.random.default_rng(0), held_out_of([count] * 5)
    alarms = []
    for _ in range(400):
        scores = getattr(rng, draw)(size=(500,))
        rejection = Rejection.of(scores[: 5 * count], held_out, false_alarm_rate=rate)
        alarms.append(rejection.is_rejected(scores[5 * count :]).mean())
    assert np.mean(alarms) == pytest.approx(rate, abs=0.015)


@pytest.mark.parametrize("draw", ["normal", "uniform"])
def test_false_alarms_of_ten_photos_are_rarer_than_a_rate_below_their_ranks(draw) -> None:
    rng, held_out = np.random.default_rng(0), held_out_of([2] * 5)
    alarms = []
    for _ in range(400):
        scores = getattr(rng, draw)(size=(500,))
        rejection = Rejection.of(scores[:10], held_out, false_alarm_rate=0.05)
        assert rejection.threshold <= scores[:10].min()
        alarms.append(rejection.is_rejected(scores[10:]).mean())
    assert np.mean(alarms) <= 0.05
    # Scores far from all others are rejected nevertheless.
    assert rejection.is_rejected([scores.mean() - 20 * scores.std()]).all()


def test_classes_weigh_equally() -> None:
    held_out = held_out_of([95, 5])
    # The small class has lower scores than the large one.
    scores = np.where(held_out.labels == 0, 10.0, 0.0) + held_out.photos / 1000
    rejection = Rejection.of(scores, held_out, false_alarm_rate=0.2)
    large, small = (scores[held_out.labels == label] for label in (0, 1))
    assert not rejection.is_rejected(large).any()
    # 20 % of both classes are 40 % of the small class.
    assert rejection.is_rejected(small).sum() in (1, 2)


def test_repeated_scores_of_a_photo_are_averaged() -> None:
    labels = np.repeat([0, 1], 3)
    folds = stratified_folds(labels, num_repeats=2)
    held_out = cross_validate(lambda train, test: np.zeros((6, 2)), folds)
    is_first = np.arange(12) < 6
    scores = held_out.photos + np.where(is_first, 0.25, -0.25)
    # The lowest of six photos has rank 1, and rate * 7 is 1.75.
    rejection = Rejection.of(scores, held_out, false_alarm_rate=0.25)
    assert rejection.threshold == pytest.approx(0.75)


def test_the_threshold_is_between_the_neighboring_ranks() -> None:
    held_out = held_out_of([5] * 4)
    scores = np.arange(20.0)[np.argsort(np.argsort(held_out.photos))]
    # rate * 21 is 2.1: between the second score, 1, and the third score, 2
    rejection = Rejection.of(scores, held_out, false_alarm_rate=0.1)
    assert rejection.threshold == pytest.approx(1.1)
    assert rejection.is_rejected([1.0, 1.2]).tolist() == [True, False]


def test_equal_scores_are_accepted() -> None:
    held_out = held_out_of([3] * 3)
    rejection = Rejection.of(np.ones(9), held_out)
    assert rejection.is_rejected([1.0, 0.9]).tolist() == [False, True]


@pytest.mark.parametrize("counts", [[1, 1, 1], [2, 1]])
def test_too_few_photos_reject_nothing(counts) -> None:
    held_out = held_out_of(counts)
    rejection = Rejection.of(np.zeros(len(held_out.photos)), held_out)
    assert rejection.threshold == -np.inf
    assert not rejection.is_rejected([-1e9]).any()


@pytest.mark.parametrize("rate", [0, -0.1, 0.6, np.nan])
def test_invalid_rates(rate) -> None:
    with pytest.raises(ConfigError, match="`false_alarm_rate` must be above 0 and at most"):
        Rejection.of(np.zeros(9), held_out_of([3] * 3), false_alarm_rate=rate)


def test_invalid_scores() -> None:
    held_out = held_out_of([3] * 3)
    with pytest.raises(ConfigError, match="a score for each of 9 held-out predictions"):
        Rejection.of(np.zeros(8), held_out)
    with pytest.raises(ConfigError, match="must not contain NaN"):
        Rejection.of(np.full(9, np.nan), held_out)
    with pytest.raises(ConfigError, match="must not contain NaN"):
        Rejection.of(np.zeros(9), held_out).is_rejected([np.nan])
