"""Ranking of unlabeled photos by how much their labels would help."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from scipy.special import xlogy
from scipy.stats import rankdata

from alfa.errors import ConfigError

# Number of photos whose similarities to all others are in memory at a time.
_BLOCK = 1024


def label_next(
    probabilities: Any, features: Any, labeled_features: Any, *, num_photos: int = 10
) -> np.ndarray:
    """Choose unlabeled photos to label, the most helpful first.

    Each choice covers the largest weight of unlabeled photos: it maximizes the sum over unlabeled
    photos of weight * increase in similarity to the nearest labeled or chosen photo. Therefore the
    chosen photos differ from each other and represent many others. The weight is the entropy of a
    photo's class probabilities times the rank of its similarity to the nearest labeled photo, which
    avoids photos of none of the classes.

    Args:
        probabilities: calibrated class probabilities of the unlabeled photos, ``[photo, class]``.
        features: features of the unlabeled photos, ``[photo, feature]``; similarity is the cosine.
        labeled_features: features of the labeled photos, ``[photo, feature]``.
        num_photos: number of photos to choose.

    Returns:
        The indices of the chosen photos, at most as many as there are unlabeled photos.

    Examples:
        >>> from alfa.assessment import label_next
        >>> probabilities = [[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]]
        >>> features = [[1.0, 0.1], [0.1, 1.0], [0.2, 1.0]]
        >>> label_next(probabilities, features, [[1.0, 0.0]], num_photos=2)
        array([2, 0])
    """
    p, x, labeled = _checked(probabilities, features, labeled_features, num_photos)
    nearest = _nearest(x, labeled)
    entropy = -xlogy(p, p).sum(axis=1) / np.log(p.shape[1])
    # If all predictions are certain, only similarity decides.
    weights = (np.maximum(entropy, 1e-6) * rankdata(nearest) / len(x)).astype(np.float32)
    return _cover(x, nearest, weights, min(num_photos, len(x)))


def _cover(x: np.ndarray, covered: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Choose photos greedily; a gain only shrinks as others are chosen, so old gains are bounds."""

    def gains(photos: slice | list[int]) -> np.ndarray:
        return np.asarray(weights @ np.maximum(x @ x[photos].T - covered[:, None], 0))

    blocks = [gains(slice(first, first + _BLOCK)) for first in range(0, len(x), _BLOCK)]
    heap = [(-float(gain), photo) for photo, gain in enumerate(np.concatenate(blocks))]
    heapq.heapify(heap)
    chosen: list[int] = []
    while len(chosen) < count:
        _, photo = heapq.heappop(heap)
        gain = -float(gains([photo])[0])
        if heap and gain > heap[0][0]:
            heapq.heappush(heap, (gain, photo))
            continue
        chosen.append(photo)
        covered = np.maximum(covered, x @ x[photo])
    return np.array(chosen, dtype=int)


def _nearest(x: np.ndarray, labeled: np.ndarray) -> np.ndarray:
    blocks = [x[first : first + _BLOCK] @ labeled.T for first in range(0, len(x), _BLOCK)]
    return np.concatenate([block.max(axis=1) for block in blocks])


def _checked(
    probabilities: Any, features: Any, labeled_features: Any, num_photos: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if num_photos < 1:
        raise ConfigError(f"`num_photos` must be at least 1, got {num_photos}.")
    p = np.asarray(probabilities, dtype=float)
    x, labeled = (np.asarray(a, dtype=np.float32) for a in (features, labeled_features))
    if p.ndim != 2 or p.shape[1] < 2 or not len(p):
        raise ConfigError(
            "`probabilities` must have a row for each unlabeled photo and a column for each of at "
            f"least 2 classes, got shape {list(p.shape)}."
        )
    if x.ndim != 2 or len(x) != len(p):
        raise ConfigError(
            f"`features` must have a row for each of {len(p)} unlabeled photos, got shape "
            f"{list(x.shape)}."
        )
    if labeled.ndim != 2 or not len(labeled) or labeled.shape[1] != x.shape[1]:
        raise ConfigError(
            f"`labeled_features` must have rows of {x.shape[1]} features, got shape "
            f"{list(labeled.shape)}."
        )
    named = {"probabilities": p, "features": x, "labeled_features": labeled}
    for name, values in named.items():
        if not np.isfinite(values).all():
            raise ConfigError(f"`{name}` must be finite; check the photos.")
    return p, _unit(x), _unit(labeled)


def _unit(x: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1)
