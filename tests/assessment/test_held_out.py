"""Predictions for held-out photos."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import cross_validate, held_out_values, stratified_folds
from alfa.errors import ConfigError


def test_no_photo_is_predicted_by_a_classifier_that_trained_on_it() -> None:
    labels = np.repeat([0, 1, 2], 4)
    folds = stratified_folds(labels)

    def cheat(train, test):
        # Correct for the training photos only
        return np.eye(3)[(labels[test] + ~np.isin(test, train)) % 3]

    held_out = cross_validate(cheat, folds)
    assert held_out.hits.tolist() == [0] * 12
    assert held_out.assessed.tolist() == list(range(12))


def test_rows_contain_the_logits_of_their_fold() -> None:
    labels = np.repeat([0, 1], 3)
    folds = stratified_folds(labels)
    held_out = cross_validate(lambda train, test: np.stack([test, test * len(train)], 1), folds)
    np.testing.assert_array_equal(held_out.photos, np.concatenate(folds.held_out))
    np.testing.assert_array_equal(held_out.logits[:, 0], held_out.photos)
    np.testing.assert_array_equal(held_out.logits[:, 1], held_out.photos * 4)
    np.testing.assert_array_equal(held_out.labels, labels[held_out.photos])
    assert held_out.train_share == pytest.approx(2 / 3)


def test_classes_weigh_equally() -> None:
    labels = np.repeat([0, 1, 2], [8, 4, 1])
    held_out = cross_validate(lambda train, test: np.eye(3)[labels[test]], stratified_folds(labels))
    assert held_out.photo_weights[labels[held_out.assessed] == 0].sum() == pytest.approx(0.5)
    assert held_out.row_weights[held_out.labels == 1].sum() == pytest.approx(0.5)
    assert held_out.effective_size == pytest.approx(4 / (1 / 8 + 1 / 4))


def test_groups_count_as_one_photo() -> None:
    labels = np.repeat([0, 1], 4)
    folds = stratified_folds(labels, groups=[0, 0, 1, 1, 2, 2, 3, 3])
    held_out = cross_validate(lambda train, test: np.eye(2)[labels[test]], folds)
    assert held_out.effective_size == pytest.approx(4)


def test_repeated_predictions_are_averaged() -> None:
    labels = np.repeat([0, 1], 2)
    folds = stratified_folds(labels, num_repeats=4)
    calls = iter(range(9))

    def changing(train, test):
        # The full classifier comes first, then two folds for each repetition.
        is_wrong = next(calls) > 6
        return np.eye(2)[(labels[test] + is_wrong) % 2]

    held_out = cross_validate(changing, folds)
    assert held_out.hits.tolist() == [0.75] * 4
    assert held_out.per_photo(held_out.photos).tolist() == [0, 1, 2, 3]


def test_growth_compares_the_full_classifier_with_the_folds() -> None:
    labels = np.repeat([0, 1], 5)
    folds = stratified_folds(labels)
    held_out = cross_validate(lambda train, test: len(train) * np.eye(2)[labels[test]], folds)
    assert held_out.growth == pytest.approx(10 / 8)
    assert held_out.spread == pytest.approx(5)
    constant = cross_validate(lambda train, test: np.zeros((len(test), 2)), folds)
    assert constant.growth == 1


def test_one_photo_of_each_class_has_no_rows() -> None:
    held_out = cross_validate(lambda train, test: 2 * np.eye(3)[test], stratified_folds([0, 1, 2]))
    assert held_out.logits.shape == (0, 3)
    assert held_out.effective_size == 0
    assert held_out.spread > 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_raise(value) -> None:
    with pytest.raises(ConfigError, match="infinite or not a number"):
        cross_validate(lambda train, test: np.full((len(test), 2), value), stratified_folds([0, 1]))


def test_logits_of_another_shape_raise() -> None:
    with pytest.raises(ConfigError, match=r"shape \[4, 2\], got \[4, 3\]"):
        cross_validate(lambda train, test: np.zeros((4, 3)), stratified_folds([0, 0, 1, 1]))


def test_values_of_held_out_photos_are_in_the_order_of_the_rows() -> None:
    labels = np.repeat([0, 1], 3)
    folds = stratified_folds(labels)
    held_out = cross_validate(lambda train, test: np.zeros((6, 2)), folds)
    values = held_out_values(lambda train, test: 10 * test, folds)
    np.testing.assert_array_equal(values, 10 * held_out.photos)
    assert held_out_values(lambda train, test: test, stratified_folds([0, 1])).shape == (0,)
    with pytest.raises(ConfigError, match="a value for each of 2 photos"):
        held_out_values(lambda train, test: test[:1], folds)


def test_accuracies_and_predictions_of_classes() -> None:
    labels = np.repeat([0, 1, 2], [4, 2, 1])
    folds = stratified_folds(labels, num_repeats=1)
    # The first photo looks like class 2.
    shown = np.where(np.arange(7) == 0, 2, labels)
    held_out = cross_validate(lambda train, test: np.eye(3)[shown[test]], folds)
    assert held_out.class_accuracies == [0.75, 1.0, None]
    assert held_out.assessed.tolist() == [0, 1, 2, 3, 4, 5]
    assert held_out.predicted.tolist() == [2, 0, 0, 0, 1, 1]
