"""The scikit-learn classifier on real images, compared with common baselines.

    python benchmarks/estimator.py accuracy RUN   200 draws of five unseen classes of CIFAR-FS
    python benchmarks/estimator.py heads RUN...   heads for other numbers of classes
    python benchmarks/estimator.py times          fit, predict, and ONNX at 32 x 32 and 84 x 84
    python benchmarks/estimator.py report         writes docs/results/estimator.md

`accuracy` and `heads` need the prepared dataset cifar-fs in `ALFA_DATA` and runs that were trained
on it. The draws of `accuracy` are the tasks of `alfa evaluate`, so both accuracies are comparable.
`heads` uses validation classes because alfa's recommendations follow from its results.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from _common import alfa, choose, figure, table, write_part
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from alfa import FewShotClassifier
from alfa._io import write_atomic
from alfa.config import parse_experiment
from alfa.data import FewShot, Split
from alfa.errors import AlfaWarning
from alfa.evaluation import mean_and_interval
from alfa.export import export_onnx
from alfa.runs import Run
from alfa.training import train_run

RESULTS = Path("docs/results/estimator.json")
PAGE = Path("docs/results/estimator.md")
NUM_DRAWS = 200
# Options of the last layer if the number of classes differs from training.
WAYS, NUM_HEAD_DRAWS = (3, 7, 10), 25
HEADS: dict[str, dict[str, Any]] = {
    "trained": {},
    "zero": {"head": "zero"},
    "prototype": {"head": "prototype"},
    "prototype, no steps": {"head": "prototype", "num_steps": 0},
}


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def keep(name: str, content: Any) -> None:
    text = json.dumps({**known(), name: content}, indent=1, sort_keys=True)
    write_atomic(RESULTS, (text + "\n").encode())


def accuracy(run: str) -> None:
    opened = Run.open(run)
    tasks, experiment = opened.tasks(), opened.experiment
    assert isinstance(tasks, FewShot)
    found: dict[str, list[float]] = {}
    for index in range(NUM_DRAWS):
        drawn = draw(tasks, index, "test", experiment.seed)
        for name, value in scores(run, *drawn).items():
            found.setdefault(name, []).append(value)
        if index % 20 == 19:
            means = ", ".join(f"{n} {100 * statistics.mean(v):.1f}" for n, v in found.items())
            print(index + 1, means, flush=True)
    figures = {}
    for name, values in found.items():
        mean, interval = mean_and_interval(torch.tensor(values))
        figures[name] = {"accuracy": mean, "accuracy_interval": interval}
    for norm in ("inductive", "transductive"):
        evaluated = json.loads(
            alfa("evaluate", run, "--num-tasks", str(NUM_DRAWS), "--batch-norm", norm, "--json")
        )
        figures[f"`alfa evaluate`, {norm}"] = {
            key: evaluated[key] for key in ("accuracy", "accuracy_interval")
        }
    length = experiment.outer.num_iterations
    keep("accuracy", {"run": run, "num_iterations": length, "figures": figures})


def draw(tasks: FewShot, index: int, split: Split, seed: int) -> tuple[np.ndarray, ...]:
    """Return the images and labels of the support set and of the query set."""
    _, numbers = tasks.draw(index, num_tasks=1, split=split, seed=seed)
    images = tasks.images.take(numbers[0]).transpose(0, 1, 3, 4, 2)
    way = len(images)
    support, query = (
        part.reshape(-1, *images.shape[2:]) for part in np.split(images, [tasks.shot], 1)
    )
    labels, truth = (np.repeat(np.arange(way), len(part) // way) for part in (support, query))
    return support, labels, query, truth


def heads(*runs: str) -> None:
    found: dict[str, Any] = {}
    for run in runs:
        opened = Run.open(run)
        tasks, experiment = opened.tasks(), opened.experiment
        assert isinstance(tasks, FewShot)
        of_run: dict[str, dict[str, Any]] = {}
        for way in WAYS:
            wider = FewShot(tasks.images, way=way, shot=tasks.shot, num_query=tasks.num_query)
            values: dict[str, list[float]] = {
                head: [] for head in HEADS if head != "trained" or way <= tasks.way
            }
            for index in range(NUM_HEAD_DRAWS):
                support, labels, query, truth = draw(wider, index, "val", experiment.seed)
                for head, scored in values.items():
                    with warnings.catch_warnings():
                        # Unsuitable heads cause warnings, and this measures them, too.
                        warnings.simplefilter("ignore", AlfaWarning)
                        clf = FewShotClassifier(run, **HEADS[head]).fit(support, labels)
                    scored.append(clf.score(query, truth))
            for head, scored in values.items():
                mean, interval = mean_and_interval(torch.tensor(scored))
                figures = {"accuracy": mean, "accuracy_interval": interval}
                of_run.setdefault(head, {})[str(way)] = figures
            print(
                run,
                way,
                {h: round(v[str(way)]["accuracy"], 4) for h, v in of_run.items() if str(way) in v},
                flush=True,
            )
        length = experiment.outer.num_iterations
        found[run] = {"num_iterations": length, "figures": of_run}
    keep("heads", {"num_draws": NUM_HEAD_DRAWS, "runs": found})


def scores(
    run: str, support: np.ndarray, labels: np.ndarray, query: np.ndarray, truth: np.ndarray
) -> dict[str, float]:
    """Return the accuracies on one draw."""
    clf = FewShotClassifier(run).fit(support, labels)
    both = clf.accuracies(query, truth)
    before = FewShotClassifier(run, num_steps=0).fit(support, labels)
    found = {
        "`FewShotClassifier`": both["inductive"],
        "`FewShotClassifier`, transductive": both["transductive"],
        "nearest prototype of the same features": prototype(before, support, labels, query, truth),
    }
    others = {
        "logistic regression on pixels": LogisticRegression(max_iter=1000),
        "linear SVM on pixels": LinearSVC(),
    }
    rows = [images.reshape(len(images), -1) / 255 for images in (support, query)]
    for name, other in others.items():
        pipe = make_pipeline(StandardScaler(), other).fit(rows[0], labels)
        found[name] = float(pipe.score(rows[1], truth))
    return found


def prototype(
    clf: FewShotClassifier,
    support: np.ndarray,
    labels: np.ndarray,
    query: np.ndarray,
    truth: np.ndarray,
) -> float:
    body = torch.nn.Sequential(*list(clf.model_)[:-1])
    with torch.no_grad():
        features = [body(clf._reader.read(images)).numpy() for images in (support, query)]
    return float(NearestCentroid().fit(features[0], labels).score(features[1], truth))


def times() -> None:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in (32, 84):
            run = untrained(Path(folder), side)
            cold = json.loads(
                subprocess.run(
                    [sys.executable, __file__, "cold", str(run), str(side)],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                ).stdout
            )
            warm = warm_times(run, side)
            found[str(side)] = {"cold": cold, "warm": warm, "threads": torch.get_num_threads()}
            print(side, found[str(side)], flush=True)
    keep("times", found)


def warm_times(run: Path, side: int) -> dict[str, float]:
    support, labels, query = pictures(side)
    clf = FewShotClassifier(run).fit(support, labels)
    file = run / "model.onnx"
    export_onnx(clf, file)
    threads = ort.SessionOptions()
    threads.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(file, threads, providers=["CPUExecutionProvider"])
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: FewShotClassifier(run).fit(support, labels),
        "predict, 1 image": lambda: clf.predict(query[:1]),
        "predict, 75 images": lambda: clf.predict(query),
        "ONNX, 1 image": lambda: session.run(None, {"images": query[:1]}),
        "ONNX, 75 images": lambda: session.run(None, {"images": query}),
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(15):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - began)
    return {name: min(values) for name, values in found.items()}


def cold(run: str, side: str) -> None:
    """Print the times of the first calls of this process."""
    support, labels, query = pictures(int(side))
    began = time.perf_counter()
    clf = FewShotClassifier(run).fit(support, labels)
    fitted = time.perf_counter()
    clf.predict(query[:1])
    print(json.dumps({"fit": fitted - began, "predict, 1 image": time.perf_counter() - fitted}))


def untrained(folder: Path, side: int) -> Path:
    """Save a run of the paper's 4-CONV; the time does not depend on its weights."""
    content = {
        "tasks": {"name": "images", "dataset": "strokes", "size": side},
        "model": {"name": "conv4"},
        "rule": {"name": "alfa"},
        "outer": {"num_iterations": 1, "num_tasks": 1, "num_val_tasks": 1},
        "test": {"num_tasks": 1, "ensemble": 1},
    }
    train_run(Run.new(folder / str(side), parse_experiment(content)))
    return folder / str(side)


def pictures(side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (100, side, side, 3), dtype=np.uint8)
    return images[:25], np.repeat(np.arange(5), 5), images[25:]


def report() -> None:
    results, lines = known(), []
    if "accuracy" in results:
        about = results["accuracy"]
        rows = [
            [name, f"{100 * x['accuracy']:.2f} +- {100 * x['accuracy_interval']:.2f}"]
            for name, x in about["figures"].items()
        ]
        note = f"Run: `{about['run']}`, {about['num_iterations']:,} iterations."
        lines += ["### Accuracy", "", note, "", *table(["classifier", "accuracy"], rows)]
    if "heads" in results:
        lines += head_table(results["heads"])
    if "times" in results:
        rows = []
        for side, found in results["times"].items():
            for state, parts in (("cold", found["cold"]), ("warm", found["warm"])):
                rows += [[f"{side} x {side}", state, k, f"{1e3 * v:.1f}"] for k, v in parts.items()]
        threads = next(iter(results["times"].values()))["threads"]
        note = (
            f"4-CONV, 5-way 5-shot, {threads} CPU thread(s). *Cold* is the first call of a "
            "process, which also loads and compiles code, *warm* the best of 15 alternating calls."
        )
        head = ["images", "state", "call", "ms"]
        lines += ["### Time", "", note, "", *table(head, rows)]
    write_part(PAGE, "estimator.py", lines)


def head_table(results: dict[str, Any]) -> list[str]:
    """Tabulate the accuracies of all heads."""
    rows = []
    for run, found in results["runs"].items():
        title = f"`{Path(run).name}`, {found['num_iterations']:,} iterations"
        for head in HEADS:
            figures = found["figures"][head]
            rows.append(
                [
                    title,
                    head,
                    *(figure(figures[w]) if w in figures else "-" for w in map(str, WAYS)),
                ]
            )
    note = (
        f"Five images per class, {results['num_draws']} draws of validation classes. The runs were "
        "trained for five classes. `head` initializes the last layer: with the trained weights, "
        "with zeros, or with the prototypes of the classes."
    )
    head = ["run", "`head`", *(f"{way} classes" for way in WAYS)]
    return ["### Other numbers of classes", "", note, "", *table(head, rows)]


if __name__ == "__main__":
    choose(__doc__, accuracy, heads, times, cold, report)
