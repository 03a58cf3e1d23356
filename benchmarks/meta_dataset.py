"""First-order MAML and Proto-MAML, with and without ALFA, on sources of Meta-Dataset.

    python benchmarks/meta_dataset.py run        trains and tests; can be interrupted and resumed
    python benchmarks/meta_dataset.py store      copies the runs to docs/results/runs, so that
                                                 `run` can resume them on another machine
    python benchmarks/meta_dataset.py resnet18   one iteration of each method with ResNet18
    python benchmarks/meta_dataset.py batches    times batches of tasks of different sizes
    python benchmarks/meta_dataset.py report     writes docs/results/meta-dataset.md

Needs md-omniglot, md-flower, md-birds, and md-traffic-sign in `ALFA_DATA`, prepared at 32 x 32, and
for `resnet18` the first two also at 84 x 84.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import tomli_w
from _common import alfa, choose, figure, keep, restore, table, write_part

from alfa._io import write_atomic
from alfa._runtime import set_threads
from alfa.build import build_learner, build_tasks
from alfa.config import Experiment, parse_experiment, to_dict
from alfa.data import grouped
from alfa.evaluation import MemoryProbe

RUNS = Path("runs/meta-dataset")
KEPT = Path("docs/results/runs/meta-dataset")
RESULTS = Path("docs/results/meta-dataset.json")
PAGE = Path("docs/results/meta-dataset.md")
TRAINED_ON = ["md-omniglot", "md-flower"]
SOURCES = [*TRAINED_ON, "md-birds", "md-traffic-sign"]
NUM_ITERATIONS, NUM_TASKS = 3_000, 200
METHODS = {
    "fo-maml": ("zero-head", "sgd", 0.1),
    "alfa+fo-maml": ("zero-head", "alfa", 0.1),
    "fo-proto-maml": ("prototype-head", "sgd", 0.01),
    "alfa+fo-proto-maml": ("prototype-head", "alfa", 0.01),
}


def experiment(method: str, *, side: int = 32, model: str = "conv4") -> Experiment:
    """Return the experiment of a method."""
    init, rule, rate = METHODS[method]
    rates = (
        {"learning_rate": rate}
        if rule == "sgd"
        else {"alpha": {"source": "generated", "start": rate}}
    )
    return parse_experiment(
        {
            "tasks": {
                "name": "meta-dataset",
                "dataset": TRAINED_ON,
                "size": side,
                "stored_size": side,
            },
            "model": {"name": model, **({"filters": 32} if model == "conv4" else {})},
            "init": {"name": init},
            "rule": {"name": rule, **rates},
            "inner": {"num_steps": 5, "order": "first", "batch_norm": "inductive"},
            "outer": {
                "num_iterations": NUM_ITERATIONS,
                "num_tasks": 1,
                "validate_every": 500,
                "num_val_tasks": 50,
            },
            "test": {"num_tasks": 50, "ensemble": 1},
        }
    )


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def add(name: str, content: Any) -> None:
    text = json.dumps({**known(), name: content}, indent=1, sort_keys=True)
    write_atomic(RESULTS, (text + "\n").encode())


def run() -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    for method in METHODS:
        path = RUNS / method
        restore(path, KEPT / method)
        if not (path / "result.json").is_file():
            config = RUNS / f"{method}.toml"
            write_atomic(config, tomli_w.dumps(to_dict(experiment(method))).encode())
            is_started = (path / "config.toml").is_file()
            alfa("train", *(["--resume"] if is_started else [str(config), "--out"]), str(path))
        # One source at a time, so that an interruption loses the results of at most one source.
        for source in SOURCES:
            rank("--sources", source, str(path))
        print(method, "done", flush=True)
    paths = [str(RUNS / method) for method in METHODS]
    found = rank("--sources", ",".join(SOURCES), *paths)
    trained = {
        method: json.loads((RUNS / method / "result.json").read_text()) for method in METHODS
    }
    add(
        "study",
        {
            method: {
                **{key: row[key] for key in ("average_rank", "sources")},
                "seconds": trained[method]["seconds"],
                "best_iteration": trained[method]["best_iteration"],
            }
            for method, row in zip(METHODS, found, strict=True)
        },
    )


def store() -> None:
    for method in METHODS:
        if (RUNS / method / "config.toml").is_file():
            KEPT.mkdir(parents=True, exist_ok=True)
            keep(RUNS / method, KEPT / method)


def rank(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        alfa("compare", "--rank", *words, "--num-tasks", str(NUM_TASKS), "--size", "32", "--json")
    )
    return found


def resnet18() -> None:
    """Time one outer iteration of each method at 84 x 84 on the same task."""
    set_threads(None, small=False)
    found = {}
    for method in METHODS:
        made = experiment(method, side=84, model="resnet18")
        tasks = build_tasks(made)
        learner = build_learner(made, tasks)
        smallest, middle = typical(tasks)
        # Warm up.
        learner(tasks.episode(smallest, num_tasks=1)).query_losses.mean().backward()
        episode = tasks.episode(middle, num_tasks=1)
        with MemoryProbe() as peak:
            began = time.perf_counter()
            learner(episode).query_losses.mean().backward()
            seconds = time.perf_counter() - began
        found[method] = {
            "seconds": seconds,
            "memory": peak.bytes,
            "way": int(episode.support_y.max()) + 1,
            "support": episode.support_x.shape[1],
            "query": episode.query_x.shape[1],
        }
        print(method, found[method], flush=True)
    add("resnet18", found)


def typical(tasks: Any) -> tuple[int, int]:
    """Return the index of the smallest support set and of a median one among 100 tasks."""
    sizes = [int(tasks.draw(index)[1].num_support.sum()) for index in range(100)]
    middle = statistics.median(sizes)
    far = [abs(size - middle) for size in sizes]
    return sizes.index(min(sizes)), far.index(min(far))


def batches() -> None:
    """Compare a batch of unequal tasks, stacked by size, with the batch padded to one size."""
    set_threads(None, small=False)
    made = experiment("fo-proto-maml")
    tasks = build_tasks(made)
    learner = build_learner(made, tasks)
    rows = []
    for first in range(0, 20, 4):
        episodes = [tasks.episode(index, num_tasks=1) for index in range(first, first + 4)]
        largest = max(episodes, key=lambda e: e.support_x.shape[1] + e.query_x.shape[1])
        # A lower bound of padding: the largest numbers of support images, query images, and classes
        # may belong to different tasks, and masks take time, too.
        padded = grouped(range(4), [largest] * 4)
        ways = {
            "by size": [group.episode for group in grouped(range(4), episodes)],
            "padded": [padded[0].episode],
        }
        best: dict[str, float] = {}
        for _ in range(3):
            for name, groups in ways.items():
                began = time.perf_counter()
                for episode in groups:
                    learner(episode).query_losses.sum().backward()
                seconds = time.perf_counter() - began
                best[name] = min(best.get(name, seconds), seconds)
        images = [e.support_x.shape[1] + e.query_x.shape[1] for e in episodes]
        rows.append({"images": images, **best})
        print(rows[-1], flush=True)
    add("batches", rows)


def report() -> None:
    results = known()
    if not results:
        sys.exit("There are no results; run `python benchmarks/meta_dataset.py run` first.")
    lines: list[str] = []
    if "study" in results:
        study = results["study"]
        rows = []
        for source in SOURCES:
            found = [study[method]["sources"][source] for method in METHODS]
            rows.append([f"`{source}`", *(f"{figure(x)} ({x['rank']:g})" for x in found)])
        rows.append(["average rank", *(f"{study[m]['average_rank']:.2f}" for m in METHODS)])
        rows.append(["minutes of training", *(f"{study[m]['seconds'] / 60:.0f}" for m in METHODS)])
        lines += ["### Accuracies with ranks", ""]
        lines += table(["source", *METHODS], rows)
    if "resnet18" in results:
        found = results["resnet18"]
        size = next(iter(found.values()))
        lines += [
            "### ResNet18 at 84 x 84",
            "",
            f"One outer iteration on a task of {size['way']} classes, {size['support']} support "
            f"and {size['query']} query images, after a warm-up on a small task.",
            "",
        ]
        rows = [
            [method, f"{row['seconds']:.1f} s", f"{row['memory'] / 1e9:.1f} GB"]
            for method, row in found.items()
        ]
        lines += table(["method", "time", "memory"], rows)
    if "batches" in results:
        rows = [
            [
                ", ".join(map(str, row["images"])),
                f"{row['by size']:.2f} s",
                f"{row['padded']:.2f} s",
                f"{row['padded'] / row['by size']:.1f}",
            ]
            for row in results["batches"]
        ]
        lines += ["### Unequal tasks in one batch", ""]
        head = ["images of four tasks", "stacked by size", "padded, at least", "ratio"]
        lines += table(head, rows)
    write_part(PAGE, "meta_dataset.py", lines)


if __name__ == "__main__":
    choose(__doc__, run, store, resnet18, batches, report)
