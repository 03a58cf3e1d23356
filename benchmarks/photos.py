"""The photo classifier on folders of real photos, compared with common baselines.

    python benchmarks/photos.py embed FOLDER   computes the features of all domains
    python benchmarks/photos.py run            draws tasks, and measures all tables
    python benchmarks/photos.py report         writes docs/results/photos.md

FOLDER contains a folder for each domain, which contains a folder of photos for each class. The
features are kept in runs/photos. `run` goes through `FewShotClassifier`; a backbone that looks up
the features replaces the network, so that thousands of tasks take minutes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import choose, table, write_part
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from torch import Tensor, nn

from alfa import FewShotClassifier
from alfa._io import write_atomic
from alfa.assessment import calibration_error
from alfa.backbones import MIXED_GROUPS, Backbone, Preprocessing, open_backbone, register_backbone
from alfa.build import build_learner
from alfa.config import compose
from alfa.data import ImageFormat, Signature, decode
from alfa.evaluation import mean_and_interval
from alfa.runs import Checkpoint, Run, TrainingProgress

FEATURES = Path("runs/photos")
RESULTS = Path("docs/results/photos.json")
PAGE = Path("docs/results/photos.md")
BACKBONE = "efficientnet-lite0-mixed"
# The photos of each class, and the test photos of each class in a task.
MOST_PHOTOS, NUM_QUERY = 60, 15
WAY = 5
# The draws of the compared shots, and of the others.
COMPARED, NUM_DRAWS, NUM_FEWER = (1, 5), 100, 30
SHOTS = (1, 2, 5, 10, 20, 40)
IMBALANCES = (5, 10, 20, 40)


def embed(folder: str) -> None:
    backbone = open_backbone(BACKBONE)
    signature = Signature((backbone.num_features,), 1, "cross_entropy", backbone=BACKBONE)
    photo = ImageFormat.of(signature)
    for domain in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
        target = FEATURES / f"{domain.name}.npz"
        if target.is_file():
            continue
        x, gray, small, y = [], [], [], []
        for label, own in enumerate(sorted(path for path in domain.iterdir() if path.is_dir())):
            for file in sorted(own.iterdir())[:MOST_PHOTOS]:
                content = file.read_bytes()
                x.append(photo.inputs(photo.decode(content)[0][None])[0].numpy())
                gray.append(decode(content, size=64, num_channels=1)[0][0])
                small.append(decode(content, size=32, num_channels=3)[0].transpose(1, 2, 0))
                y.append(label)
        FEATURES.mkdir(parents=True, exist_ok=True)
        pixels = {"gray": np.stack(gray), "small": np.stack(small)}
        np.savez_compressed(target, x=np.stack(x), y=np.array(y), **pixels)
        print(domain.name, len(y), "photos of", max(y) + 1, "classes", flush=True)


class Lookup(nn.Module):
    """Returns the features of the photo whose index is the color of the only pixel."""

    def __init__(self, features: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("table", torch.from_numpy(features))

    def forward(self, x: Tensor) -> Tensor:
        red, green, blue = (x.flatten(1) * 255).round().long().unbind(1)
        return self.table[red + 256 * green + 65536 * blue]


def as_photos(indices: np.ndarray) -> np.ndarray:
    """Return photos of one pixel, uint8 ``[photo, 1, 1, 3]``, that encode indices."""
    digits = np.stack([indices % 256, indices // 256 % 256, indices // 65536], axis=-1)
    return digits.astype(np.uint8)[:, None, None]


def make_run(name: str, features: np.ndarray) -> Path:
    """Return a run like the model `photos` on stored features."""
    one = Preprocessing(size=1, resize=1, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    backbone = Backbone(name, Lookup(features), features.shape[1], one)
    register_backbone(name)(lambda: backbone)
    overrides = ["model.power=1.0", "head.name=kernel-ridge", f"head.groups={list(MIXED_GROUPS)}"]
    experiment = compose("strokes", method="balanced-ridge", backbone=name, overrides=overrides)
    signature = Signature((features.shape[1],), WAY, "cross_entropy", backbone=name)
    run = Run.new(FEATURES / "models" / name, experiment)
    run.create(signature)
    progress = TrainingProgress(iteration=1).model_dump(mode="json")
    state = Checkpoint.of(
        build_learner(experiment, signature), None, fingerprint=run.fingerprint, progress=progress
    )
    state.save(run.files.checkpoint("best"))
    return run.path


class Domain:
    """The features of a domain, and its tasks."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        with np.load(path) as file:
            self.x, self.gray, self.y = file["x"], file["gray"], file["y"]
            self.small = file["small"]
        self.run = make_run(f"lookup-{self.name}", self.x)

    def draws(self, counts: list[int], num_draws: int) -> Iterator[Any]:
        """Yield the support photos, the query photos, and photos of the other classes."""
        num_query = NUM_QUERY
        rng = np.random.default_rng(0)
        sizes = np.bincount(self.y)
        for _ in range(num_draws):
            # All settings were chosen on the classes with even numbers.
            usable = np.flatnonzero(sizes >= max(counts) + 5)
            usable = usable[usable % 2 == 1]
            if len(usable) < 2:
                return
            way = min(len(counts), len(usable))
            classes = rng.choice(usable, way, replace=False)
            support, query = [], []
            for label, count in zip(classes, counts[:way], strict=True):
                photos = rng.permutation(np.flatnonzero(self.y == label))
                support.append(photos[:count])
                query.append(photos[max(counts) : max(counts) + num_query])
            others = np.flatnonzero(self.y % 2 == 0)
            others = rng.permutation(others)[: 2 * num_query]
            yield np.concatenate(support), np.concatenate(query), others


def hog(images: np.ndarray) -> np.ndarray:
    """Return histograms of oriented gradients: 8 x 8 cells, 9 directions, blocks of 2 x 2 cells."""
    found = []
    for image in images.astype(np.float32):
        down, right = np.gradient(image)
        size = np.hypot(down, right)
        direction = (np.arctan2(down, right) % np.pi) / np.pi * 9
        cells = np.zeros((8, 8, 9), np.float32)
        rows, columns = np.indices(image.shape) // 8
        low = np.floor(direction).astype(int)
        share = direction - low
        np.add.at(cells, (rows, columns, low % 9), size * (1 - share))
        np.add.at(cells, (rows, columns, (low + 1) % 9), size * share)
        blocks = [cells[i : i + 2, j : j + 2].ravel() for i in range(7) for j in range(7)]
        found.append(np.concatenate([b / (np.linalg.norm(b) + 1e-3) for b in blocks]))
    return np.stack(found)


def baselines(domain: Domain, support: np.ndarray, query: np.ndarray) -> dict[str, np.ndarray]:
    """Return the predictions of other classifiers on the same features, and of HOG + SVM."""
    y = domain.y[support]
    # Undo the power of the features of the last layer.
    z, q = (normalize(domain.x[rows, : MIXED_GROUPS[0]] ** (1 / 0.7)) for rows in (support, query))
    classes = np.unique(y)
    means = normalize(np.stack([z[y == label].mean(0) for label in classes]))
    small = FewShotClassifier("cifar-fs", head="zero", num_folds=0)
    edges = domain.hog[support], domain.hog[query]
    return {
        "logistic regression": LogisticRegression(max_iter=1000).fit(z, y).predict(q),
        "linear SVM": LinearSVC().fit(z, y).predict(q),
        "prototypes": classes[(q @ means.T).argmax(1)],
        "HOG + SVM": LinearSVC().fit(edges[0], y).predict(edges[1]),
        "small model": small.fit(domain.small[support], y).predict(domain.small[query]),
    }


def measure(domain: Domain, strangers: np.ndarray, shot: int) -> dict[str, Any]:
    """Measure accuracies, estimates, and rejections over all draws of one number of shots."""
    found: dict[str, Any] = {"right": {}, "estimates": [], "none": []}
    probabilities, truth = [], []
    rng = np.random.default_rng(1)
    # Photos of other domains follow those of the domain in the table.
    strange = np.arange(len(domain.x), len(domain.x) + len(strangers))
    domain.run = make_run(f"lookup-{domain.name}", np.concatenate([domain.x, strangers]))
    is_compared = shot in COMPARED
    num_draws = NUM_DRAWS if is_compared else NUM_FEWER
    for support, query, others in domain.draws([shot] * WAY, num_draws):
        clf = FewShotClassifier(domain.run).fit(as_photos(support), domain.y[support])
        own = clf.assess(as_photos(query))
        hits = {"alfa": own.labels == domain.y[query]}
        others_of = baselines(domain, support, query) if is_compared else {}
        hits |= {name: labels == domain.y[query] for name, labels in others_of.items()}
        for name, right in hits.items():
            found["right"].setdefault(name, []).append(float(right.mean()))
        estimate = clf.accuracy_
        found["estimates"].append([estimate.accuracy, estimate.low, estimate.high])
        rejected = [float(own.is_none.mean())]
        for photos in (others, rng.permutation(strange)[:30]):
            rejected.append(
                float(clf.is_none(as_photos(photos)).mean()) if len(photos) else float("nan")
            )
        found["none"].append(rejected)
        probabilities.append(own.probabilities)
        truth.append(np.searchsorted(clf.classes_, domain.y[query]))
    if probabilities:
        found["calibration_error"] = calibration_error(
            np.concatenate(probabilities), np.concatenate(truth)
        )
    return found


def run() -> None:
    domains = [Domain(path) for path in sorted(FEATURES.glob("*.npz"))]
    if not domains:
        sys.exit("There are no features; run `python benchmarks/photos.py embed FOLDER` first.")
    results: dict[str, Any] = {}
    for domain in domains:
        domain.hog = hog(domain.gray)
        others = [
            other.x[:: max(1, len(other.x) // 60)] for other in domains if other is not domain
        ]
        own: dict[str, Any] = {"photos": len(domain.y), "classes": int(domain.y.max()) + 1}
        own["shots"] = {shot: measure(domain, np.concatenate(others), shot) for shot in SHOTS}
        own["imbalance"] = {first: imbalance(domain, first) for first in IMBALANCES}
        results[domain.name] = own
        write_atomic(RESULTS, (json.dumps(results, sort_keys=True) + "\n").encode())
        right = own["shots"][5]["right"]
        means = {name: round(100 * np.mean(values), 1) for name, values in right.items()}
        print(domain.name, means, flush=True)


def imbalance(domain: Domain, first: int) -> list[float]:
    """Return the accuracy of each draw with more photos of the first class; queries are equal."""
    found = []
    for support, query, _ in domain.draws([max(IMBALANCES)] * WAY, NUM_FEWER):
        groups = support.reshape(-1, max(IMBALANCES))
        own = np.concatenate([groups[0][:first], *(group[:5] for group in groups[1:])])
        clf = FewShotClassifier(domain.run, num_folds=0).fit(as_photos(own), domain.y[own])
        found.append(float(np.mean(clf.predict(as_photos(query)) == domain.y[query])))
    return found


def percent(values: list[float]) -> str:
    mean, interval = mean_and_interval(100 * torch.tensor(values, dtype=torch.float64))
    return f"{mean:.1f} +- {interval:.1f}"


def report() -> None:
    results = json.loads(RESULTS.read_text())
    lines: list[str] = []
    names = ["alfa", "logistic regression", "linear SVM", "prototypes", "HOG + SVM"]
    names.append("small model")
    for shot in ("5", "1"):
        rows, gains, best = [], [], []
        for domain, own in results.items():
            right = own["shots"][shot]["right"]
            gain = (np.array(right["alfa"]) - right["logistic regression"]).tolist()
            others = max(np.mean(right[name]) for name in names[1:])
            gains.append(gain)
            best.append(100 * (np.mean(right["alfa"]) - others))
            rows.append(
                [
                    domain,
                    *(f"{100 * np.mean(right[n]):.1f}" for n in names),
                    percent(gain),
                    f"{best[-1]:+.1f}",
                ]
            )
        means = [
            np.mean([np.mean(o["shots"][shot]["right"][n]) for o in results.values()])
            for n in names
        ]
        rows.append(
            [
                "**mean**",
                *(f"{100 * m:.1f}" for m in means),
                f"{100 * np.mean([np.mean(g) for g in gains]):+.1f}",
                f"worst {min(best):+.1f}",
            ]
        )
        lines += [f"### {WAY}-way {shot}-shot accuracy", ""]
        head = ["domain", *names, "alfa minus logistic regression", "alfa minus best other"]
        lines += table(head, rows)
    lines += ["### Estimated accuracy and calibration", ""]
    for shot in ("2", "5", "10"):
        rows, covered, biases = [], [], []
        for domain, own in results.items():
            found = own["shots"][shot]
            if not found["estimates"]:
                continue
            estimate, low, high = np.array(found["estimates"], float).T
            truth = np.array(found["right"]["alfa"])
            inside = (low <= truth) & (truth <= high)
            biases.append(100 * np.mean(estimate - truth))
            covered.append(100 * np.mean(inside))
            rows.append(
                [
                    domain,
                    f"{biases[-1]:+.1f}",
                    f"{100 * np.mean(high - low):.0f}",
                    f"{covered[-1]:.0f} %",
                    f"{found['calibration_error']:.3f}",
                ]
            )
        errors = [float(row[-1]) for row in rows]
        rows.append(
            [
                "**mean**",
                f"{np.mean(biases):+.1f}",
                "",
                f"{np.mean(covered):.0f} %",
                f"{np.mean(errors):.3f}",
            ]
        )
        lines += [f"{shot} photos of each class:", ""]
        head = ["domain", "mean error (points)", "width of the interval (points)"]
        lines += table([*head, "coverage", "calibration error"], rows)
    lines += ["### None of these", ""]
    rows = []
    for domain, own in results.items():
        rates = [np.nanmean(np.array(own["shots"][s]["none"], float), 0) for s in ("2", "5", "10")]
        cells = [f"{100 * rate:.0f} %" for each in rates for rate in each]
        rows.append([domain, *cells])
    parts = ("false alarms", "other classes", "other domains")
    head = ["domain", *(f"{part}, {shot}-shot" for shot in (2, 5, 10) for part in parts)]
    lines += table(head, rows)
    lines += ["### More photos of each class", ""]
    rows = [
        [
            domain,
            *(
                percent(r) if (r := own["shots"][str(s)]["right"].get("alfa")) else "-"
                for s in SHOTS
            ),
        ]
        for domain, own in results.items()
    ]
    lines += table(["domain", *(f"{shot} photos" for shot in SHOTS)], rows)
    lines += ["### More photos of one class", ""]
    rows = [
        [domain, *(percent(r) if (r := own["imbalance"][str(n)]) else "-" for n in IMBALANCES)]
        for domain, own in results.items()
    ]
    lines += table(["domain", *(f"{n}, 5, 5, 5, 5" for n in IMBALANCES)], rows)
    write_part(PAGE, "photos.py", lines)


if __name__ == "__main__":
    choose(__doc__, embed, run, report)
