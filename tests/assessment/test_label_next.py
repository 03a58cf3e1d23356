"""Choice of photos to label."""

from __future__ import annotations

import numpy as np
import pytest

from alfa.assessment import _label_next, label_next
from alfa.errors import ConfigError


@pytest.fixture
def clusters() -> tuple[np.ndarray, np.ndarray]:
    """Four directions with 10 photos each, and the cluster of each photo."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(4), 10)
    return np.eye(8)[cluster] + 0.05 * rng.normal(size=(40, 8)), cluster


def test_the_batch_covers_the_clusters_without_labels(clusters) -> None:
    x, cluster = clusters
    p = np.full((40, 2), 0.5)
    chosen = label_next(p, x, np.eye(8)[:1], num_photos=3)
    assert set(cluster[chosen]) == {1, 2, 3}


def test_uncertain_photos_come_first(clusters) -> None:
    x, cluster = clusters
    p = np.where(cluster[:, None] == 2, [[0.5, 0.5]], [[0.99, 0.01]])
    assert cluster[label_next(p, x, np.eye(8)[4:5], num_photos=1)] == 2


def test_unfamiliar_photos_are_avoided() -> None:
    # Two pairs of equal photos; the second pair is more similar to the labeled photo.
    x = [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 1.0], [0.3, 0.0, 1.0]]
    chosen = label_next(np.full((4, 2), 0.5), x, [[1.0, 0.0, 0.0]], num_photos=2)
    assert chosen[0] in (2, 3)
    assert chosen[1] in (0, 1)


def plain(p, x, labeled, num_photos):
    """Compute the same choice from the definition, with all similarities at once."""
    x, labeled = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, labeled))
    covered = (x @ labeled.T).max(axis=1)
    familiarity = (np.argsort(np.argsort(covered)) + 1) / len(x)
    weights = -(p * np.log(p)).sum(axis=1) / np.log(p.shape[1]) * familiarity
    chosen = []
    for _ in range(num_photos):
        gains = weights @ np.maximum(x @ x.T - covered[:, None], 0)
        gains[chosen] = -1
        chosen.append(int(gains.argmax()))
        covered = np.maximum(covered, x @ x[chosen[-1]])
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_follows_the_definition(seed, monkeypatch) -> None:
    monkeypatch.setattr(_label_next, "_BLOCK", 7)
    rng = np.random.default_rng(seed)
    x, labeled = rng.normal(size=(60, 5)), rng.normal(size=(4, 5))
    p = rng.dirichlet(np.ones(3), size=60)
    assert label_next(p, x, labeled, num_photos=12).tolist() == plain(p, x, labeled, 12)


def test_all_photos_are_ranked_at_most_once() -> None:
    rng = np.random.default_rng(0)
    x, p = rng.normal(size=(9, 4)), rng.dirichlet(np.ones(200), size=9)
    assert sorted(label_next(p, x, x[:1], num_photos=50)) == list(range(9))


def test_certain_and_identical_photos() -> None:
    p, x = np.tile([1.0, 0.0], (5, 1)), np.ones((5, 3))
    assert sorted(label_next(p, x, x[:1], num_photos=5)) == list(range(5))
    # A feature vector of zeros resembles nothing.
    assert len(label_next(p, np.zeros((5, 3)), x[:1], num_photos=2)) == 2


@pytest.mark.parametrize(
    ("p", "x", "labeled", "num_photos", "message"),
    [
        ([[0.5, 0.5]], [[1.0]], [[1.0]], 0, "`num_photos` must be at least 1, got 0"),
        ([0.5, 0.5], [[1.0]], [[1.0]], 1, r"`probabilities` .* got shape \[2\]"),
        ([[1.0]], [[1.0]], [[1.0]], 1, "at least 2 classes"),
        ([[0.5, 0.5]], [[1.0], [1.0]], [[1.0]], 1, "`features` must have a row for each of 1"),
        ([[0.5, 0.5]], [[1.0]], [[1.0, 2.0]], 1, "`labeled_features` must have rows of 1"),
        ([[0.5, 0.5]], [[1.0]], np.zeros((0, 1)), 1, r"got shape \[0, 1\]"),
        ([[np.nan, 0.5]], [[1.0]], [[1.0]], 1, "`probabilities` must be finite"),
        ([[0.5, 0.5]], [[np.nan]], [[1.0]], 1, "`features` must be finite"),
        ([[0.5, 0.5]], [[1.0]], [[np.inf]], 1, "`labeled_features` must be finite"),
    ],
)
def test_invalid_arguments(p, x, labeled, num_photos, message) -> None:
    with pytest.raises(ConfigError, match=message):
        label_next(p, x, labeled, num_photos=num_photos)
