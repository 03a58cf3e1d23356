"""Calibrated probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import Calibration, calibration_error, cross_validate, stratified_folds
from alfa.errors import ConfigError


@pytest.mark.parametrize(
    ("shots", "distance", "error"),
    [
        ([5] * 5, 0.3, 0.05),
        ([5] * 5, 0.6, 0.03),
        ([2] * 5, 0.6, 0.08),
        ([5] * 20, 0.4, 0.05),
        ([40, 5, 5, 5, 5], 0.4, 0.05),
    ],
)
def test_pooled_probabilities_are_calibrated(make_photos, shots, distance, error) -> None:
    probabilities, labels = [], []
    for seed in range(60):
        photos = make_photos(shots, seed=seed, distance=distance, num_test=50)
        calibration = Calibration.of(photos.held_out(seed=seed))
        probabilities.append(calibration.probabilities(photos.test_logits))
        labels.append(photos.test_y)
    p, y = np.concatenate(probabilities), np.concatenate(labels)
    assert calibration_error(p, y) <= error
    # Another temperature has a larger error.
    assert calibration_error(p**2 / (p**2).sum(1, keepdims=True), y) > error


def test_the_scale_of_the_logits_does_not_matter(make_photos) -> None:
    photos = make_photos([5] * 5)
    folds = stratified_folds(photos.y)

    def temperature(scale):
        def scaled(train, test):
            return scale * photos.logits(train, photos.x[test])

        return Calibration.of(cross_validate(scaled, folds)).temperature

    temperatures = [temperature(scale) for scale in (1.0, 1e-3, 1e3)]
    assert temperatures[1] == pytest.approx(1e-3 * temperatures[0], rel=1e-3)
    assert temperatures[2] == pytest.approx(1e3 * temperatures[0], rel=1e-3)


def test_many_photos_outweigh_the_prior() -> None:
    rng = np.random.default_rng(0)
    # The true temperature of these logits is 1, far from the mean of the prior.
    logits = 0.5 * rng.normal(size=(4000, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (rng.random((4000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    held_out = cross_validate(lambda train, test: logits[test], stratified_folds(labels))
    assert Calibration.of(held_out).held_out_temperature == pytest.approx(1, rel=0.15)


def test_the_temperature_follows_the_growth_of_the_logits() -> None:
    labels = np.repeat([0, 1], 10)
    noise = np.random.default_rng(0).normal(size=(20, 2))

    def growing(train, test):
        return len(train) * (np.eye(2)[labels[test]] + noise[test])

    calibration = Calibration.of(cross_validate(growing, stratified_folds(labels)))
    assert calibration.temperature == pytest.approx(20 / 16 * calibration.held_out_temperature)


@pytest.mark.parametrize("num_classes", [2, 200])
def test_perfect_and_hopeless_predictions(num_classes) -> None:
    labels, highest = np.repeat(np.arange(num_classes), 5), []
    for shift in (0, 1):
        logits = np.eye(num_classes)[(labels + shift) % num_classes]
        held_out = cross_validate(
            lambda train, test, found=logits: found[test], stratified_folds(labels)
        )
        p = Calibration.of(held_out).probabilities(logits)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        highest.append(p.max())
    # All predictions of the first classifier are right, and all of the second are wrong.
    assert 0.95 < highest[0] < 1
    assert highest[1] < 0.7


def test_equal_logits_have_equal_probabilities() -> None:
    held_out = cross_validate(lambda train, test: np.ones((6, 3)), stratified_folds([0, 1, 2] * 2))
    calibration = Calibration.of(held_out)
    assert calibration.temperature == 1
    np.testing.assert_allclose(calibration.probabilities(np.ones((1, 3))), 1 / 3)


@pytest.mark.parametrize("num_classes", [2, 5, 20])
def test_one_photo_of_each_class_uses_the_spread_alone(num_classes) -> None:
    folds = stratified_folds(np.arange(num_classes))
    for logits in (np.eye(num_classes), 100 * np.eye(num_classes)):
        held_out = cross_validate(lambda train, test, found=logits: found[test], folds)
        calibration = Calibration.of(held_out)
        assert calibration.error is None
        expected = held_out.spread / np.exp(1.6) * num_classes**0.18
        assert calibration.temperature == pytest.approx(expected)
    equal = cross_validate(lambda train, test: np.zeros((num_classes,) * 2), folds)
    assert Calibration.of(equal).temperature == 1


def test_losses_and_probabilities_of_held_out_photos(make_photos) -> None:
    held_out = make_photos([3] * 4).held_out()
    calibration = Calibration.of(held_out)
    p = calibration.held_out_probabilities(held_out)
    own = -np.log(p[np.arange(len(p)), held_out.labels])
    expected = [own[held_out.photos == photo].mean() for photo in held_out.assessed]
    np.testing.assert_allclose(calibration.held_out_losses(held_out), expected)
    error = calibration_error(p, held_out.labels, weights=held_out.row_weights)
    assert calibration.error == pytest.approx(error)


def test_the_calibration_error_of_known_bins() -> None:
    # Confidence 0.95 with accuracy 1/2, and 0.65 with accuracy 1
    p = [[0.95, 0.05], [0.95, 0.05], [0.35, 0.65], [0.35, 0.65]]
    assert calibration_error(p, [0, 1, 1, 1]) == pytest.approx((0.45 + 0.35) / 2)
    weighted = calibration_error(p, [0, 1, 1, 1], weights=[1, 1, 0, 0])
    assert weighted == pytest.approx(0.45)
    assert calibration_error([[1.0, 0.0]], [0]) == 0


@pytest.mark.parametrize(
    ("p", "labels", "message"),
    [
        ([[0.5, 0.5]], [0, 1], "a row for each of 2 photos"),
        ([0.5, 0.5], [0, 1], r"got shape \[2\]"),
        ([[np.nan, 0.5]], [0], "between 0 and 1"),
        ([[1.5, 0.5]], [0], "between 0 and 1"),
    ],
)
def test_invalid_probabilities(p, labels, message) -> None:
    with pytest.raises(ConfigError, match=message):
        calibration_error(p, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0]}, "`weights` must be 2 numbers with a positive sum"),
        ({"weights": [0.0, 0.0]}, "`weights` must be 2 numbers with a positive sum"),
        ({"num_bins": 0}, "`num_bins` must be at least 1, got 0"),
    ],
)
def test_invalid_options(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        calibration_error([[0.5, 0.5], [0.9, 0.1]], [0, 1], **options)
