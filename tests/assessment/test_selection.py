"""Choice of a head by the one-standard-error rule."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import cross_validate, select, stratified_folds
from alfa.errors import ConfigError


def candidates(labels, **logits):
    """Return held-out predictions with fixed logits, on the same folds."""
    folds = stratified_folds(labels)
    return {
        name: cross_validate(lambda train, test, found=found: found[test], folds)
        for name, found in logits.items()
    }


def noisy(labels, signal, seed):
    rng = np.random.default_rng(1000 + seed)
    return rng.normal(size=(len(labels), 3)) + signal * np.eye(3)[labels]


LABELS = np.repeat([0, 1, 2], 20)


def test_a_much_better_candidate_is_chosen() -> None:
    found = candidates(LABELS, default=noisy(LABELS, 0.5, 0), better=noisy(LABELS, 5, 1))
    chosen = select(found)
    assert chosen.name == "better"
    assert chosen.losses["better"] < chosen.losses["default"]
    assert chosen.reason.startswith("the log loss of better is lower by")
    assert chosen.reason.endswith("than default's")


def test_the_default_is_kept_if_another_is_hardly_better() -> None:
    logits = noisy(LABELS, 2, 0)
    other = logits + 0.3 * noisy(LABELS, 0.1, 1)
    chosen = select(candidates(LABELS, default=logits, other=other))
    swapped = select(candidates(LABELS, other=other, default=logits))
    assert chosen.name == "default"
    assert swapped.name == "other"
    worse = chosen if chosen.losses["default"] > chosen.losses["other"] else swapped
    assert "is the default, and no log loss is lower by more than one" in worse.reason
    better = swapped if worse is chosen else chosen
    assert better.reason == f"{better.name} has the lowest log loss"


def test_the_order_decides_between_equally_good_candidates() -> None:
    good = noisy(LABELS, 5, 1)
    found = candidates(LABELS, default=noisy(LABELS, 0, 0), simple=good, complex=good + 1)
    assert select(found).name == "simple"


def test_chance_rarely_replaces_the_default() -> None:
    labels = LABELS[::4]
    chosen = [
        select(candidates(labels, default=noisy(labels, 2, seed), other=noisy(labels, 2, ~seed)))
        for seed in range(100)
    ]
    # With one standard error, chance replaces the default in 16 % of the cases.
    assert np.mean([one.name == "other" for one in chosen]) < 0.25


def test_without_held_out_photos_the_default_is_chosen() -> None:
    labels = np.arange(3)
    chosen = select(candidates(labels, default=np.zeros((3, 3)), other=np.eye(3)))
    assert chosen.name == "default"
    assert chosen.reason.endswith("a comparison needs two photos of each class")


def test_a_single_candidate() -> None:
    assert select(candidates(LABELS, only=noisy(LABELS, 1, 0))).name == "only"


def test_invalid_candidates() -> None:
    with pytest.raises(ConfigError, match="at least one candidate"):
        select({})
    first, second = (candidates(LABELS, a=noisy(LABELS, 1, 0))["a"] for _ in range(2))
    with pytest.raises(ConfigError, match="on the same folds"):
        select({"first": first, "second": second})
