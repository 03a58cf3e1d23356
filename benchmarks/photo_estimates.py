"""Estimates from a few labeled photos, compared with results on thousands of other photos.

    python benchmarks/photo_estimates.py accuracy FOLDER [even]    accuracy and calibration
    python benchmarks/photo_estimates.py rejection FOLDER [even]   photos of none of the classes
    python benchmarks/photo_estimates.py heads FOLDER [even]       choice of a head
    python benchmarks/photo_estimates.py labels FOLDER [even]      photos to label next
    python benchmarks/photo_estimates.py report                    writes docs/results/
                                                                   photo-estimates.md

FOLDER contains a file DOMAIN.npz for each domain, with features of photos, `x` ([photo, feature]),
and class numbers, `y`. The tasks consist of classes with odd numbers. All constants of
`alfa.assessment` were chosen on even numbers; `even` repeats the measurements on these and prints
them without saving.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import _photo_page
import numpy as np
from _common import choose, write_part
from _photo_domains import HEADS, SCORES, Domain, Draw, Head, Score, draws, far_photos

from alfa._io import write_atomic
from alfa.assessment import (
    AccuracyEstimate,
    Calibration,
    HeldOut,
    Rejection,
    cross_validate,
    held_out_values,
    label_next,
    select,
    stratified_folds,
)

RESULTS = Path("docs/results/photo-estimates.json")
PAGE = Path("docs/results/photo-estimates.md")
NUM_DRAWS, NUM_BINS = 100, 10
# Photos of each class, and the number of draws.
SETTINGS = {
    "5-way 5-shot": ([5] * 5, NUM_DRAWS),
    "5-way 1-shot": ([1] * 5, NUM_DRAWS),
    "5-way 2-shot": ([2] * 5, NUM_DRAWS),
    "5-way 3-shot": ([3] * 5, NUM_DRAWS),
    "5-way 10-shot": ([10] * 5, NUM_DRAWS),
    "5-way 20-shot": ([20] * 5, NUM_DRAWS),
    "5-way 40-shot": ([40] * 5, NUM_DRAWS),
    "2-way 5-shot": ([5] * 2, NUM_DRAWS),
    "10-way 5-shot": ([5] * 10, NUM_DRAWS),
    "20-way 5-shot": ([5] * 20, 40),
    "40-way 5-shot": ([5] * 40, 20),
    "20-way 2-shot": ([2] * 20, 40),
    "40, 5, 5, 5, 5": ([40, 5, 5, 5, 5], NUM_DRAWS),
    "20, 5, 5, 5, 5": ([20, 5, 5, 5, 5], NUM_DRAWS),
    "10, 5, 4, 3, 2": ([10, 5, 4, 3, 2], NUM_DRAWS),
    "5, 5, 5, 5, 1": ([5, 5, 5, 5, 1], NUM_DRAWS),
}
# The settings of each head: the estimates must not depend on the head.
DEFAULT = "ridge"
HEAD_SETTINGS = {
    "ridge": tuple(SETTINGS),
    "logistic": (*tuple(SETTINGS)[:3], "5-way 10-shot", "20-way 5-shot", "20, 5, 5, 5, 5"),
    "logistic, C = 10": tuple(SETTINGS)[:3],
    "prototype": tuple(SETTINGS)[:3],
}
RATES = (0.05, 0.1)
REJECTION_SETTINGS = ("5-way 5-shot", "5-way 2-shot", "5-way 10-shot", "20, 5, 5, 5, 5")
SELECTION_SETTINGS = ("5-way 2-shot", "5-way 5-shot", "5-way 10-shot", "20, 5, 5, 5, 5")
# Classes, photos of each, photos to label, and the share of photos of none of the classes.
LABEL_SETTINGS = {
    "1 photo per class + 5": (5, 1, 5, 0.0),
    "1 photo per class + 10": (5, 1, 10, 0.0),
    "2 photos per class + 5": (5, 2, 5, 0.0),
    "2 photos per class + 10": (5, 2, 10, 0.0),
    "1 photo per class + 10, a third of no class": (5, 1, 10, 1 / 3),
    "2 photos per class + 10, a third of no class": (5, 2, 10, 1 / 3),
}

Row = dict[str, Any]


def fit_predict(head: Head, draw: Draw) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    num_classes = int(draw.y.max()) + 1
    return lambda train, test: head(draw.x[train], draw.y[train], num_classes)(draw.x[test])


def by_class(hits: np.ndarray, y: np.ndarray, classes: Iterable[int] | None = None) -> float:
    """Return the mean of the accuracies of the classes."""
    labels = np.unique(y) if classes is None else classes
    return float(np.mean([hits[y == label].mean() for label in labels]))


class Accuracy:
    """Measures estimates and probabilities of one domain and setting."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.rows: list[tuple[float, ...]] = []
        self.bins = np.zeros((3, NUM_BINS))
        self.held_out_errors: list[float] = []

    def add(self, draw: Draw, seed: int) -> None:
        folds = stratified_folds(draw.y, seed=seed)
        held_out = cross_validate(fit_predict(self.head, draw), folds)
        estimate, calibration = AccuracyEstimate.of(held_out), Calibration.of(held_out)
        logits = self.head(draw.x, draw.y, folds.num_classes)(draw.test_x)
        hits = logits.argmax(axis=1) == draw.test_y
        confidence = calibration.probabilities(logits).max(axis=1)
        numbers = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
        for part, values in zip(self.bins, (None, confidence, hits), strict=True):
            part += np.bincount(numbers, values, minlength=NUM_BINS)
        if calibration.error is None:
            self.rows.append((by_class(hits, draw.test_y), np.nan, np.nan, np.nan, len(hits)))
            return
        truth = by_class(hits, draw.test_y, np.unique(held_out.labels))
        self.rows.append((truth, estimate.accuracy, estimate.low, estimate.high, len(hits)))
        self.held_out_errors.append(calibration.error)

    def summary(self) -> Row:
        truth, found, low, high, size = np.array(self.rows).T
        # The test photos determine the true accuracy up to half a photo.
        slack = 0.5 / size
        is_covered = (truth >= low - slack) & (truth <= high + slack)
        row = {
            "draws": len(truth),
            "truth": truth.mean(),
            "ece": float(np.abs(self.bins[1] - self.bins[2]).sum() / self.bins[0].sum()),
        }
        if self.held_out_errors:
            row |= {
                "bias": (found - truth).mean(),
                "rmse": np.sqrt(((found - truth) ** 2).mean()),
                "coverage": is_covered.mean(),
                "width": (high - low).mean(),
                "held_out_ece": np.mean(self.held_out_errors),
            }
        return {name: float(value) for name, value in row.items()}


def accuracy(folder: str, parity: str = "odd") -> None:
    """Measure estimated accuracies and calibration."""
    for domain in load(folder, parity):
        for name, head in HEADS.items():
            for setting in HEAD_SETTINGS[name]:
                shots, count = SETTINGS[setting]
                found = Accuracy(head)
                for seed, draw in enumerate(draws(domain, shots, count)):
                    found.add(draw, seed)
                if found.rows:
                    save(parity, f"accuracy/{name}/{setting}", domain.name, found.summary())


def rejection(folder: str, parity: str = "odd") -> None:
    """Measure false alarms and detections of photos of none of the classes."""
    domains = load(folder, parity)
    for domain in domains:
        far_x = far_photos(domain, domains)
        for setting in REJECTION_SETTINGS:
            shots, count = SETTINGS[setting]
            rates: dict[str, list[tuple[float, ...]]] = {}
            for seed, draw in enumerate(draws(domain, shots, count)):
                for name, values in rejections(draw, far_x, seed).items():
                    rates.setdefault(name, []).append(values)
            if rates:
                row = {name: np.mean(values, axis=0).tolist() for name, values in rates.items()}
                save(parity, f"rejection/{setting}", domain.name, row)


def rejections(draw: Draw, far_x: np.ndarray, seed: int) -> dict[str, tuple[float, ...]]:
    """Return false alarms, detections near and far, and the accuracy of accepted photos."""
    head, folds = HEADS[DEFAULT], stratified_folds(draw.y, seed=seed)
    held_out = cross_validate(fit_predict(head, draw), folds)
    calibration = Calibration.of(held_out)
    logits = head(draw.x, draw.y, folds.num_classes)
    new = (draw.test_x, draw.near_x, far_x)
    scores = {
        "probability": (
            calibration.held_out_probabilities(held_out).max(axis=1),
            [calibration.probabilities(logits(x)).max(axis=1) for x in new],
        )
    }
    for name, score in SCORES.items():

        def of(train: np.ndarray, test: np.ndarray, score: Score = score) -> np.ndarray:
            return score(draw.x[train], draw.y[train], draw.x[test])

        scores[name] = held_out_values(of, folds), [score(draw.x, draw.y, x) for x in new]
    hits, found = logits(draw.test_x).argmax(axis=1) == draw.test_y, {}
    for name, (held_out_scores, new_scores) in scores.items():
        for rate in RATES:
            rule = Rejection.of(held_out_scores, held_out, false_alarm_rate=rate)
            alarms, near, far = map(rule.is_rejected, new_scores)
            gain = hits[~alarms].mean() - hits.mean()
            shares = by_class(alarms, draw.test_y), near.mean(), far.mean(), gain
            found[f"{name}, {rate:.0%}"] = shares
    return found


def heads(folder: str, parity: str = "odd") -> None:
    """Measure the accuracy of the selected head."""
    for domain in load(folder, parity):
        for setting in SELECTION_SETTINGS:
            shots, count = SETTINGS[setting]
            found = [selection(draw, seed) for seed, draw in enumerate(draws(domain, shots, count))]
            if found:
                row = {name: mean_and_interval([one[name] for one in found]) for name in found[0]}
                save(parity, f"heads/{setting}", domain.name, row)


def selection(draw: Draw, seed: int) -> dict[str, float]:
    """Return gains in accuracy over the default head: of each head, and of the choices."""
    folds = stratified_folds(draw.y, seed=seed)
    candidates = {n: cross_validate(fit_predict(h, draw), folds) for n, h in HEADS.items()}
    truth = {}
    for name, head in HEADS.items():
        found = head(draw.x, draw.y, folds.num_classes)(draw.test_x).argmax(axis=1)
        truth[name] = by_class(found == draw.test_y, draw.test_y)
    chosen = select(candidates)
    by_accuracy = max(candidates, key=lambda n: mean_hits(candidates[n]))
    by_loss = min(chosen.losses, key=chosen.losses.__getitem__)
    choices = {"select": chosen.name, "lowest loss": by_loss, "highest accuracy": by_accuracy}
    gains = {name: truth[name] - truth[DEFAULT] for name in HEADS if name != DEFAULT}
    gains |= {name: truth[choice] - truth[DEFAULT] for name, choice in choices.items()}
    return {**gains, "default chosen": float(chosen.name == DEFAULT)}


def mean_hits(held_out: HeldOut) -> float:
    return float(held_out.photo_weights @ held_out.hits)


def labels(folder: str, parity: str = "odd") -> None:
    """Measure the gain in accuracy from labeling photos, relative to random photos."""
    domains = load(folder, parity)
    for domain in domains:
        far_x = far_photos(domain, domains)
        for setting, (way, shot, count, share) in LABEL_SETTINGS.items():
            # Half of the remaining photos are unlabeled, and half are test photos.
            found = [
                label_gains(draw, far_x, count, share, np.random.default_rng(seed))
                for seed, draw in enumerate(draws(domain, [shot] * way, NUM_DRAWS))
            ]
            if found:
                row = {name: mean_and_interval([one[name] for one in found]) for name in found[0]}
                save(parity, f"labels/{setting}", domain.name, row)


def label_gains(
    draw: Draw, far_x: np.ndarray, count: int, share: float, rng: np.random.Generator
) -> dict[str, float]:
    """Return accuracies after labeling random photos, and gains of other choices over them."""
    head, num_classes = HEADS[DEFAULT], int(draw.y.max()) + 1
    is_pool = np.zeros(len(draw.test_y), bool)
    for label in range(num_classes):
        photos = rng.permutation(np.flatnonzero(draw.test_y == label))
        is_pool[photos[: len(photos) // 2]] = True
    # A label of a photo of none of the classes, -1, is useless.
    num_near = num_far = round(is_pool.sum() * share / (1 - share) / 2)
    pool_x = np.concatenate(
        [draw.test_x[is_pool], draw.near_x[:num_near], rng.permutation(far_x)[:num_far]]
    )
    pool_y = np.full(len(pool_x), -1)
    pool_y[: is_pool.sum()] = draw.test_y[is_pool]

    def score(chosen: Sequence[int] | np.ndarray) -> float:
        chosen = np.asarray(chosen, dtype=int)
        chosen = chosen[pool_y[chosen] >= 0]
        x, y = np.concatenate([draw.x, pool_x[chosen]]), np.append(draw.y, pool_y[chosen])
        logits = head(x, y, num_classes)(draw.test_x[~is_pool])
        return by_class(logits.argmax(axis=1) == draw.test_y[~is_pool], draw.test_y[~is_pool])

    held_out = cross_validate(fit_predict(head, draw), stratified_folds(draw.y))
    p = Calibration.of(held_out).probabilities(head(draw.x, draw.y, num_classes)(pool_x))
    ordered = np.sort(p, axis=1)
    similar = np.sort(pool_x @ pool_x.T, axis=1)[:, -11:-1].mean(axis=1)
    entropy = -(p * np.log(np.maximum(p, 1e-12))).sum(axis=1)
    choices = {
        "label_next": label_next(p, pool_x, draw.x, num_photos=count),
        "margin": np.argsort(ordered[:, -1] - ordered[:, -2])[:count],
        "entropy": np.argsort(-entropy)[:count],
        "entropy * density": np.argsort(-entropy * similar)[:count],
        "typical": np.argsort(-similar)[:count],
        "k-center": k_center(pool_x, draw.x, count),
    }
    random = float(np.mean([score(rng.permutation(len(pool_x))[:count]) for _ in range(5)]))
    gains = {name: score(chosen) - random for name, chosen in choices.items()}
    return {"before": score([]), "random": random, **gains}


def k_center(x: np.ndarray, labeled: np.ndarray, count: int) -> list[int]:
    """Return the photos that are farthest from all labeled and chosen photos, one by one."""
    covered, chosen = (x @ labeled.T).max(axis=1), []
    for _ in range(count):
        chosen.append(int(covered.argmin()))
        covered = np.maximum(covered, x @ x[chosen[-1]])
    return chosen


def mean_and_interval(values: Sequence[float]) -> list[float]:
    return [float(np.mean(values)), float(1.96 * np.std(values, ddof=1) / np.sqrt(len(values)))]


def load(folder: str, parity: str) -> list[Domain]:
    paths = sorted(Path(folder).glob("*.npz"))
    return [Domain.load(path, odd=parity != "even") for path in paths]


def save(parity: str, study: str, domain: str, row: Row) -> None:
    """Print a result, and save it unless it belongs to the classes of the choices."""
    row = json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 5))
    print(study, domain, json.dumps(row), flush=True)
    if parity == "even":
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    found.setdefault(study, {})[domain] = row
    write_atomic(RESULTS, (json.dumps(found, indent=1) + "\n").encode())


def report() -> None:
    """Write the tables of the page, with the settings in the order of `SETTINGS`."""
    found = json.loads(RESULTS.read_text())
    order = {name: number for number, name in enumerate([*SETTINGS, *LABEL_SETTINGS])}
    names = sorted(found, key=lambda name: order[name.rpartition("/")[2]])
    write_part(PAGE, "photo_estimates.py", _photo_page.lines({name: found[name] for name in names}))


if __name__ == "__main__":
    choose(__doc__, accuracy, rejection, heads, labels, report)
