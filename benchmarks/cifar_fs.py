"""MAML and ALFA + MAML on 5-way 5-shot CIFAR-FS with 4-CONV, and on other images.

    python benchmarks/cifar_fs.py run       trains on CIFAR-FS and tests, also on other datasets
    python benchmarks/cifar_fs.py strokes   trains both methods on generated characters
    python benchmarks/cifar_fs.py large     ALFA + MAML on miniImageNet at 84 x 84, tested on CUB
    python benchmarks/cifar_fs.py resnet12  one outer iteration of each ResNet12 row of Table 1
    python benchmarks/cifar_fs.py report    writes docs/results/cifar-fs.md and its picture

Each command can be interrupted and resumed. Needs the prepared datasets cifar-fs, omniglot, cub,
vgg-flower, traffic-sign, and miniimagenet in `ALFA_DATA`. Both methods train on the same tasks in
the same order. `run` tests the last model after 2,000 iterations on 300 tasks, for comparison with
other code, and continues to 6,000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _common import alfa, choose, figure, table, write_part

from alfa._io import write_atomic
from alfa.methods import METHODS as ALL_METHODS
from alfa.paper import TABLES

RUNS = Path("runs")
RESULTS = Path("docs/results/cifar-fs.json")
PAGE = Path("docs/results/cifar-fs.md")
# The names of the methods in run folders and in cifar-fs.json.
METHODS = {"maml": "maml", "alfa": "alfa+maml"}
TITLES = {name: ALL_METHODS[method].title for name, method in METHODS.items()}
SHORT, LONG = 2_000, 6_000
OTHER_DATASETS = ("omniglot", "cub", "vgg-flower", "traffic-sign")


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def add(method: str, key: str, content: Any) -> None:
    results = known()
    results.setdefault(method, {})[key] = content
    write_atomic(RESULTS, (json.dumps(results, indent=1, sort_keys=True) + "\n").encode())


def train(name: str, *settings: str) -> dict[str, Any]:
    """Start or resume a run and return its result."""
    path = RUNS / name
    dataset, _, method = name.rpartition("-")
    new = [dataset, "--method", METHODS[method], "--out"]
    words = ["--resume"] if (path / "config.toml").is_file() else new
    alfa("train", *words, str(path), *(word for x in settings for word in ("--set", x)))
    result = json.loads((path / "result.json").read_text())
    metrics = [json.loads(line) for line in (path / "metrics.jsonl").open()]
    return {**{key: result[key] for key in result if key != "config"}, "metrics": metrics}


def test(name: str, *options: str) -> dict[str, Any]:
    return json.loads(alfa("evaluate", str(RUNS / name), *options, "--json"))


def run() -> None:
    for method in METHODS:
        name = f"cifar-fs-{method}"
        if "short" not in known().get(method, {}):
            # The run's own test is not needed, so it has a single task.
            train(name, f"outer.num_iterations={SHORT}", "test.num_tasks=1")
            add(method, "short", test(name, "--checkpoint", "last", "--num-tasks", "300"))
        if "long" not in known()[method]:
            add(method, "long", train(name, f"outer.num_iterations={LONG}", "test.num_tasks=600"))
        for dataset in OTHER_DATASETS:
            if dataset not in known()[method]:
                add(method, dataset, test(name, "--dataset", dataset))
                print(method, dataset, figure(known()[method][dataset]), flush=True)


def strokes() -> None:
    settings = ("outer.num_iterations=400", "test.num_tasks=300")
    for method in METHODS:
        add(method, "strokes", train(f"strokes-{method}", *settings))
        print("strokes", method, figure(known()[method]["strokes"]["test"]), flush=True)


def large() -> None:
    name = "miniimagenet-alfa"
    settings = ("num_iterations=400", "validate_every=50", "num_val_tasks=50")
    trained = train(name, *(f"outer.{x}" for x in settings), "test.num_tasks=200")
    add("large", "miniimagenet", trained)
    add("large", "cub", test(name, "--dataset", "cub", "--num-tasks", "200"))
    print("cub", figure(known()["large"]["cub"]), flush=True)


def resnet12() -> None:
    for cell in TABLES["table1"].cells:
        _, setting, row, backbone = cell.id.split("/")
        if (setting, backbone) != ("miniimagenet-5w5s", "resnet12"):
            continue
        if row in known().get("resnet12", {}):
            continue
        # Each row has a separate process, so that its peak memory can be read.
        code = f"import cifar_fs; print(cifar_fs.iterate({cell.id!r}))"
        here, there = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, there]))}
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=path
        )
        add("resnet12", row, json.loads(done.stdout.splitlines()[-1]))
        print(row, known()["resnet12"][row], flush=True)


def iterate(cell_id: str) -> str:
    """Run one outer iteration of a cell; return its loss, time, and memory as JSON."""
    import resource

    import torch

    from alfa.build import build_learner, build_tasks
    from alfa.learner import plan_memory

    (cell,) = [cell for cell in TABLES["table1"].cells if cell.id == cell_id]
    tasks = build_tasks(cell.experiment)
    learner = build_learner(cell.experiment, tasks)
    parameters = list(learner.meta_parameters())
    episode = tasks.episode(0, num_tasks=cell.experiment.outer.num_tasks)
    plan = plan_memory(learner, episode)
    learner.memory = plan.mode
    began = time.perf_counter()
    losses = []
    for first in range(0, episode.num_tasks, plan.tasks_at_once):
        part = episode[first : first + plan.tasks_at_once]
        outcome = learner(part, order="second" if parameters else "none")
        loss = outcome.query_losses.sum() / episode.num_tasks
        if parameters:
            loss.backward()
        losses.append(float(loss.detach()))
    if parameters:
        torch.optim.Adam(parameters, lr=cell.experiment.optimizer.options["learning_rate"]).step()
    return json.dumps(
        {
            "loss": sum(losses),
            "seconds": time.perf_counter() - began,
            "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
            "memory": plan.mode,
            "tasks_at_once": plan.tasks_at_once,
            "num_meta_parameters": sum(p.numel() for p in parameters),
        }
    )


def picture(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (method, title), color in zip(TITLES.items(), ("#8a8f98", "#2f6f9f"), strict=True):
        metrics = results[method]["long"]["metrics"]
        iterations = [record["iteration"] for record in metrics]
        accuracies = [100 * record["val_accuracy"] for record in metrics]
        axes.plot(iterations, accuracies, "o-", color=color, label=title)
    axes.set_xlabel("outer iterations")
    axes.set_ylabel("validation accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def report() -> None:
    results = known()
    parts = {"run": "long", "strokes": "strokes"}
    missing = [name for name, key in parts.items() if any(key not in results[m] for m in METHODS)]
    missing += [name for name in ("large", "resnet12") if name not in results]
    if missing:
        sys.exit(
            f"There are no results of {', '.join(missing)}; run `python benchmarks/cifar_fs.py` "
            "with each of these commands first."
        )
    lines = ["### CIFAR-FS", "", *tested(results)]
    rows = [[x, *(figure(results[method][x]) for method in METHODS)] for x in OTHER_DATASETS]
    lines += ["### Other datasets", "", *table(["tested on", *TITLES.values()], rows)]
    lines += ["### Generated characters", "", *on_strokes(results)]
    lines += ["### 84 x 84 pixels", "", *on_large(results["large"])]
    lines += ["### ResNet12", "", *on_resnet12(results["resnet12"])]
    picture(results, Path("docs/images/cifar-fs.png"))
    write_part(PAGE, "cifar_fs.py", lines)


def tested(results: dict[str, Any]) -> list[str]:
    rows = [
        [
            title,
            figure(results[method]["short"]),
            figure(results[method]["long"]["test"]),
            figure(results[method]["long"]["ensemble"]),
            f"{results[method]['long']['seconds'] / 60:.0f}",
        ]
        for method, title in TITLES.items()
    ]
    last, best = f"{SHORT:,} iterations, last model", f"{LONG:,} iterations, best model"
    return table(["method", last, best, "ensemble", "minutes of training"], rows)


def on_strokes(results: dict[str, Any]) -> list[str]:
    rows = [
        [
            title,
            f"{100 * results[method]['strokes']['metrics'][0]['val_accuracy']:.2f}",
            figure(results[method]["strokes"]["test"]),
            figure(results[method]["strokes"]["ensemble"]),
            f"{results[method]['strokes']['seconds'] / 60:.1f}",
        ]
        for method, title in TITLES.items()
    ]
    first = results["maml"]["strokes"]["metrics"][0]["iteration"]
    count = results["maml"]["strokes"]["num_iterations"]
    val, best = f"{first} iterations, validation", f"{count:,} iterations, best model"
    return table(["method", val, best, "ensemble", "minutes of training"], rows)


def on_large(results: dict[str, Any]) -> list[str]:
    trained = results["miniimagenet"]
    rows = [
        [
            str(record["iteration"]),
            f"{record['train_loss']:.3f}",
            f"{record['val_loss']:.3f}",
            f"{100 * record['val_accuracy']:.2f}",
        ]
        for record in trained["metrics"]
    ]
    rate = trained["seconds"] / trained["num_iterations"]
    return [
        *table(["iteration", "training loss", "validation loss", "validation accuracy, %"], rows),
        f"Tested on miniImageNet: {figure(trained['test'])} (best model), "
        f"{figure(trained['ensemble'])} (ensemble); on CUB: {figure(results['cub'])} (best model). "
        f"One iteration takes {rate:.2f} s.",
        "",
    ]


def on_resnet12(results: dict[str, Any]) -> list[str]:
    rows = [
        [
            ALL_METHODS[row].title,
            f"{found['num_meta_parameters']:,}",
            f"{found['loss']:.3f}",
            f"{found['seconds']:.1f}",
            f"{found['gigabytes']:.2f}",
            f"{found['memory']}, {found['tasks_at_once']} at a time",
        ]
        for row in ALL_METHODS
        if (found := results.get(row)) is not None
    ]
    return table(["method", "meta-parameters", "loss", "seconds", "GB", "memory mode"], rows)


if __name__ == "__main__":
    choose(__doc__, run, strokes, large, resnet12, report)
