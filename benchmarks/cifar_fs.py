"""Few-shot images: MAML and ALFA + MAML on CIFAR-FS, 5-way 5-shot, 4-CONV, tested elsewhere too.

    python benchmarks/cifar_fs.py run     trains and tests; can be stopped and started again
    python benchmarks/cifar_fs.py report  writes docs/results/cifar-fs.json and cifar-fs.md

Needs the prepared datasets cifar-fs, omniglot, cub, vgg-flower and traffic-sign where `ALFA_DATA`
says. Both methods see the same tasks in the same order. After 2,000 iterations the last model is
tested on 300 tasks, to be held against figures of that length; training then goes on to 6,000.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RUNS = Path("runs")
RESULTS = Path("docs/results/cifar-fs.json")
PAGE = Path("docs/results/cifar-fs.md")
BEGIN, END = "<!-- written by benchmarks/cifar_fs.py report -->", "<!-- end -->"
METHODS = {"maml": "MAML", "alfa": "ALFA + MAML"}
SHORT, LONG = 2_000, 6_000
ELSEWHERE = ("omniglot", "cub", "vgg-flower", "traffic-sign")


def alfa(*arguments: str) -> str:
    command = [sys.executable, "-c", "from alfa.cli.main import main; main()", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def add(method: str, key: str, content: Any) -> None:
    results = known()
    results.setdefault(method, {})[key] = content
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def train(method: str, num_iterations: int) -> None:
    path = RUNS / f"cifar-fs-{method}"
    begin = ["--resume"] if (path / "config.toml").is_file() else [f"cifar-fs-{method}", "--out"]
    alfa("train", *begin, str(path), "--set", f"outer.num_iterations={num_iterations}")


def test(method: str, *options: str) -> dict[str, Any]:
    return json.loads(alfa("evaluate", str(RUNS / f"cifar-fs-{method}"), *options, "--json"))


def run() -> None:
    for method in METHODS:
        path = RUNS / f"cifar-fs-{method}"
        if "short" not in known().get(method, {}):
            train(method, SHORT)
            add(method, "short", test(method, "--checkpoint", "last", "--num-tasks", "300"))
        if "long" not in known()[method]:
            train(method, LONG)
            result = json.loads((path / "result.json").read_text())
            add(method, "metrics", [json.loads(x) for x in (path / "metrics.jsonl").open()])
            add(method, "long", {key: result[key] for key in result if key != "config"})
        for dataset in ELSEWHERE:
            if dataset not in known()[method]:
                add(method, dataset, test(method, "--dataset", dataset))
                print(method, dataset, figure(known()[method][dataset]), flush=True)


def figure(found: dict[str, Any]) -> str:
    return f"{100 * found['accuracy']:.2f} +- {100 * found['accuracy_interval']:.2f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def picture(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (method, title), color in zip(METHODS.items(), ("#8a8f98", "#2f6f9f"), strict=True):
        metrics = results[method]["metrics"]
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
    rows = [
        [
            title,
            figure(results[method]["short"]),
            figure(results[method]["long"]["test"]),
            figure(results[method]["long"]["ensemble"]),
            f"{results[method]['long']['seconds'] / 60:.0f}",
        ]
        for method, title in METHODS.items()
    ]
    head = ["", f"{SHORT:,} iterations, last model", f"{LONG:,}, best model", "ensemble", "minutes"]
    lines = ["### CIFAR-FS", "", *table(head, rows), "### Elsewhere", ""]
    rows = [[x, *(figure(results[method][x]) for method in METHODS)] for x in ELSEWHERE]
    lines += table(["tested on", *METHODS.values()], rows)
    picture(results, Path("docs/images/cifar-fs.png"))
    text = PAGE.read_text() if PAGE.is_file() else f"# CIFAR-FS\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + END + rest.split(END)[1])


if __name__ == "__main__":
    commands = {f.__name__: f for f in (run, report)}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
