"""Draws of few-shot tasks from features of photos, and fast heads for thousands of fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import log_softmax, softmax

# Fewer test photos of a class do not determine the true accuracy.
MIN_TEST = 10
NUM_OTHERS = 150

Logits = Callable[[np.ndarray], np.ndarray]
"""Function from features of photos to logits."""
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Function from training photos, their classes, and other photos to scores of the latter."""


@dataclass(frozen=True, eq=False)
class Domain:
    """Features of photos, ``[photo, feature]`` with unit length, and their classes.

    Tasks consist of the classes with odd numbers, or of the classes with even numbers.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    odd: bool

    @classmethod
    def load(cls, path: Path, *, odd: bool) -> Domain:
        with np.load(path) as found:
            x, y = found["x"], found["y"]
        return cls(path.stem, x / np.linalg.norm(x, axis=1, keepdims=True), y, odd)

    def classes(self, shots: Sequence[int]) -> np.ndarray:
        """Return the classes for tasks with these numbers of training photos."""
        known = np.flatnonzero(np.bincount(self.y) >= max(shots) + MIN_TEST)
        return known[known % 2 == int(self.odd)]


@dataclass(frozen=True, eq=False)
class Draw:
    """A task: training and test photos, and photos of other classes of the domain."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    near_x: np.ndarray


def draws(domain: Domain, shots: Sequence[int], count: int, *, seed: int = 0) -> Iterator[Draw]:
    """Draw tasks with one class for each number of training photos."""
    rng = np.random.default_rng(seed)
    known = domain.classes(shots)
    if len(known) < len(shots):
        return
    for _ in range(count):
        classes = rng.choice(known, len(shots), replace=False)
        own = [rng.permutation(np.flatnonzero(domain.y == label)) for label in classes]
        train = [photos[:shot] for photos, shot in zip(own, shots, strict=True)]
        test = [photos[shot:] for photos, shot in zip(own, shots, strict=True)]
        others = rng.permutation(np.flatnonzero(~np.isin(domain.y, classes)))[:NUM_OTHERS]
        labels = (np.repeat(np.arange(len(shots)), list(map(len, part))) for part in (train, test))
        y, test_y = labels
        x, test_x, near_x = (
            domain.x[photos] for photos in (np.concatenate(train), np.concatenate(test), others)
        )
        yield Draw(x, y, test_x, test_y, near_x)


def far_photos(domain: Domain, domains: Sequence[Domain], count: int = 300) -> np.ndarray:
    """Return photos of other domains; domains with the same prefix share photos or classes."""
    others = [d for d in domains if d.name[:3] != domain.name[:3]]
    rng = np.random.default_rng(0)
    number = -(-count // max(len(others), 1))
    parts = [d.x[rng.choice(len(d.x), min(number, len(d.x)), replace=False)] for d in others]
    return np.concatenate(parts) if parts else domain.x[:0]


def balanced(y: np.ndarray, num_classes: int) -> np.ndarray:
    """Return weights with which classes weigh equally; their mean is 1."""
    return len(y) / (num_classes * np.bincount(y, minlength=num_classes)[y])


@dataclass(frozen=True)
class Logistic:
    """Logistic regression with weight decay |W|^2 / 2; its classes weigh equally.

    Newton's method with conjugate gradients runs in the subspace of the training photos.
    """

    c: float = 1.0

    def __call__(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Logits:
        mean = x.mean(axis=0)
        centered = (x - mean).astype(float)
        values, vectors = np.linalg.eigh(centered @ centered.T)
        kept = values > 1e-9 * max(values[-1], 1e-12)
        basis = centered.T @ (vectors[:, kept] / np.sqrt(values[kept]))
        z = np.c_[centered @ basis, np.ones(len(x))]
        theta = self._solve(z, np.eye(num_classes)[y], balanced(y, num_classes)[:, None])
        weight = basis @ theta[:-1]
        bias = theta[-1] - mean @ weight
        return lambda photos: photos @ weight + bias

    def _solve(self, z: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
        weights = self.c * weights
        # The last row is the bias, of which only the mean over classes is regularized.
        decay = np.ones((z.shape[1], 1))
        decay[-1] = 0
        theta = np.zeros((z.shape[1], target.shape[1]))

        def loss(theta: np.ndarray) -> float:
            fit = -(weights * target * log_softmax(z @ theta, axis=1)).sum()
            return float(fit + (decay * theta**2).sum() / 2 + theta[-1].mean() ** 2 / 2)

        for _ in range(100):
            p = softmax(z @ theta, axis=1)
            gradient = z.T @ (weights * (p - target)) + decay * theta
            gradient[-1] += theta[-1].mean() / len(theta[-1])
            if np.abs(gradient).max() < 1e-5 * max(1.0, self.c):
                break

            def product(v: np.ndarray, p: np.ndarray = p) -> np.ndarray:
                along = p * (z @ v)
                curved = weights * (along - p * along.sum(axis=1, keepdims=True))
                found = z.T @ curved + decay * v
                found[-1] += v[-1].mean() / len(v[-1])
                return found

            step = _conjugate_gradients(product, gradient)
            size, before, slope = 1.0, loss(theta), float((gradient * step).sum())
            while loss(theta - size * step) > before - 1e-4 * size * slope and size > 1e-4:
                size /= 2
            theta = theta - size * step
        return theta


def _conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], right: np.ndarray
) -> np.ndarray:
    v, residual = np.zeros_like(right), right.copy()
    direction, square = residual.copy(), float((residual**2).sum())
    least = 1e-4 * square
    for _ in range(500):
        if square <= least:
            break
        found = product(direction)
        length = square / float((direction * found).sum())
        v, residual = v + length * direction, residual - length * found
        square, previous = float((residual**2).sum()), square
        direction = residual + square / previous * direction
    return v


class Prototype:
    """Ten times the cosine similarity to the mean of each class."""

    def __call__(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Logits:
        means = np.stack([x[y == label].mean(axis=0) for label in range(num_classes)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return lambda photos: 10 * photos @ means.T


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of the classes on powers of the features; its classes weigh equally."""

    decay: float = 0.1

    def __call__(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Logits:
        w, x = balanced(y, num_classes), powers(x)
        mean = (w @ x) / w.sum()
        centered = (x - mean).astype(float)
        target = np.eye(num_classes)[y] - 1 / num_classes
        dual = np.linalg.solve(centered @ centered.T + self.decay * np.diag(1 / w), target)
        weight = centered.T @ dual
        return lambda photos: (powers(photos) - mean) @ weight


def powers(x: np.ndarray) -> np.ndarray:
    """Return features to the power of 0.7, with unit length."""
    found = np.sign(x) * np.abs(x) ** 0.7
    return found / np.linalg.norm(found, axis=1, keepdims=True)


Head = Ridge | Logistic | Prototype
HEADS: dict[str, Head] = {
    "ridge": Ridge(),
    "logistic": Logistic(),
    "logistic, C = 10": Logistic(10.0),
    "prototype": Prototype(),
}


def ridge_and_prototype(x: np.ndarray, y: np.ndarray, photos: np.ndarray) -> np.ndarray:
    """Return the largest sum of a class's ridge score and 3 cosines to its prototype."""
    num_classes = int(y.max()) + 1
    cosines = Prototype()(powers(x), y, num_classes)(powers(photos)) / 10
    return (Ridge()(x, y, num_classes)(photos) + 3 * cosines).max(axis=1)


def nearest_photo(x: np.ndarray, y: np.ndarray, photos: np.ndarray) -> np.ndarray:
    """Return the largest cosine similarity to a training photo."""
    return (photos @ x.T).max(axis=1)


# Scores of "none of these" that need no probabilities; higher for more familiar photos.
SCORES = {"ridge + prototype": ridge_and_prototype, "nearest photo": nearest_photo}
