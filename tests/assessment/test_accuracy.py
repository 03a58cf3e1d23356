"""Estimated accuracies, compared with true accuracies."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import AccuracyEstimate, cross_validate, stratified_folds

NUM_DRAWS = 150


def estimates(make_photos, shots, **options) -> tuple[np.ndarray, ...]:
    """Return true accuracies, estimates, and the ends of the intervals of many draws."""
    rows = []
    for seed in range(NUM_DRAWS):
        photos = make_photos(shots, seed=seed, **options)
        found = AccuracyEstimate.of(photos.held_out(seed=seed))
        rows.append((photos.accuracy, found.accuracy, found.low, found.high))
    return tuple(np.array(rows).T)


@pytest.mark.parametrize(
    ("shots", "distance", "bias"),
    [
        ([5] * 5, 0.3, 0.02),
        ([5] * 5, 0.6, 0.02),
        # Two folds of two photos train on one, and the second photo helps most.
        ([2] * 5, 0.5, 0.05),
        ([3] * 5, 0.5, 0.03),
        ([20] * 5, 0.3, 0.02),
        ([5] * 2, 0.3, 0.02),
        ([3] * 20, 0.5, 0.02),
        ([40, 5, 5, 5, 5], 0.4, 0.02),
    ],
)
def test_estimates_are_unbiased_and_intervals_cover_the_truth(
    make_photos, shots, distance, bias
) -> None:
    truth, found, low, high = estimates(make_photos, shots, distance=distance)
    assert np.mean(found - truth) == pytest.approx(0, abs=bias)
    assert np.mean((low <= truth) & (truth <= high)) >= 0.9
    # Wide intervals would cover the truth as well.
    assert np.mean(high - low) < 5 * np.std(found - truth)


def test_guessing_is_not_corrected_upward(make_photos) -> None:
    truth, found, low, high = estimates(make_photos, [5] * 5, distance=0.0)
    assert np.mean(truth) == pytest.approx(0.2, abs=0.01)
    assert np.mean(found) == pytest.approx(0.2, abs=0.03)
    assert np.mean((low <= truth) & (truth <= high)) >= 0.9


def test_the_correction_depends_on_the_share_of_training_photos(make_photos) -> None:
    held_out = make_photos([6] * 4).held_out()
    found = [
        AccuracyEstimate.of(type(held_out)(**{**vars_of(held_out), "train_share": share}))
        for share in (1.0, 0.8, 0.5)
    ]
    uncorrected = float(held_out.photo_weights @ held_out.hits)
    assert found[0].accuracy == pytest.approx(uncorrected)
    assert found[0].accuracy < found[1].accuracy < found[2].accuracy < 1
    assert found[0].low <= found[1].low <= found[2].low


def vars_of(held_out):
    names = ("folds", "photos", "logits", "train_share", "growth", "spread")
    return {name: getattr(held_out, name) for name in names}


def predicted(labels, predictions) -> AccuracyEstimate:
    """Return the estimate for given predictions."""
    logits = np.eye(max(labels) + 1)[predictions]
    folds = stratified_folds(labels)
    return AccuracyEstimate.of(cross_validate(lambda train, test: logits[test], folds))


@pytest.mark.parametrize("num_classes", [2, 5, 200])
def test_all_correct(num_classes) -> None:
    labels = np.repeat(np.arange(num_classes), 5)
    found = predicted(labels, labels)
    assert found.accuracy == found.high == 1
    assert 0.7 < found.low < 1
    assert found.num_photos == 5 * num_classes


@pytest.mark.parametrize("num_classes", [2, 5, 200])
def test_all_wrong(num_classes) -> None:
    labels = np.repeat(np.arange(num_classes), 5)
    found = predicted(labels, (labels + 1) % num_classes)
    assert found.accuracy == found.low == 0
    assert 0 < found.high < 0.4


def test_more_photos_narrow_the_interval() -> None:
    widths = []
    for count in (2, 5, 10, 40):
        labels = np.repeat(np.arange(5), count)
        wrong = np.arange(len(labels)) % 4 == 0
        found = predicted(labels, (labels + wrong) % 5)
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)


def test_photos_of_a_large_class_do_not_outweigh_the_others() -> None:
    labels = np.repeat([0, 1], [40, 5])
    found = predicted(labels, np.zeros(45, int))
    assert found.accuracy == pytest.approx(0.5)
    # The five photos of class 1 limit the precision.
    assert found.high - found.low > 0.4


def test_one_photo_per_class_has_no_estimate() -> None:
    found = predicted(np.arange(3), np.arange(3))
    assert found.accuracy is found.low is found.high is None
    assert found.num_unknown == 3
    assert str(found).startswith("unknown, because an estimate needs at least two different photos")


def test_a_class_with_one_photo_is_reported() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    found = predicted(labels, labels)
    assert found.num_photos == 6
    assert str(found).endswith("from your 6 photos, without 1 class with too few photos")
    found = predicted(np.array([0, 0, 1, 2]), [0, 0, 1, 2])
    assert str(found).endswith("without 2 classes with too few photos")


def test_the_text_rounds_the_interval_outward() -> None:
    found = AccuracyEstimate(0.7781, 0.6599, 0.9001, 25, 5, 0)
    assert str(found) == "about 78 %, between 65 and 91 %, from your 25 photos"


def test_estimates_are_deterministic(make_photos) -> None:
    first, same = (AccuracyEstimate.of(make_photos([4] * 3).held_out(seed=5)) for _ in range(2))
    assert first == same
