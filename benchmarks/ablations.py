"""Cells of Tables 5 and 6 on CIFAR-FS, 5-way 5-shot, 4-CONV, held against each other.

    python benchmarks/ablations.py run      trains and tests; can be stopped and started again
    python benchmarks/ablations.py report   writes docs/results/ablations.md

Needs the prepared dataset cifar-fs where `ALFA_DATA` says. Each cell is the paper's, on other
images and shorter: all see the same training tasks in the same order and are tested on the same
tasks, so that two of them are compared task by task.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomli_w

from alfa.config import parse_experiment, to_dict
from alfa.paper import TABLES, Cell
from alfa.train import Run, judge
from alfa.train.files import write_atomic

RUNS = Path("runs/ablations")
RESULTS = Path("docs/results/ablations.json")
PAGE = Path("docs/results/ablations.md")
BEGIN, END = "<!-- written by benchmarks/ablations.py report -->", "<!-- end -->"
NUM_ITERATIONS, NUM_TASKS = 1_500, 600
ROWS = ("maml-alpha", "maml-beta", "random-alpha", "random-beta")
INPUTS = ("weights-only", "gradients-only", "weights+gradients")
# What is asked of each pair: the first against the second.
PAIRS = (
    *((f"{row}-per-layer-adaptive", f"{row}-per-layer-fixed") for row in ROWS),
    ("weights+gradients", "weights-only"),
    ("weights+gradients", "gradients-only"),
)


def cells() -> dict[str, Cell]:
    wanted = [f"{row}-per-layer-{kind}" for row in ROWS for kind in ("fixed", "adaptive")]
    found = {
        cell.id.split("/")[2]: cell for name in ("table5", "table6") for cell in TABLES[name].cells
    }
    return {name: found[name] for name in (*wanted, *INPUTS)}


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def alfa(*arguments: str) -> str:
    command = [sys.executable, "-c", "from alfa.cli.main import main; main()", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def config(name: str, cell: Cell) -> Path:
    """The cell's experiment on CIFAR-FS, as a file for `alfa train`."""
    content = json.loads(json.dumps(dict(cell.content)))
    content["tasks"] |= {"dataset": "cifar-fs", "size": 32}
    content["outer"] |= {"num_iterations": NUM_ITERATIONS, "num_val_tasks": 300}
    content["test"] = {"num_tasks": NUM_TASKS, "ensemble": 1}
    experiment = parse_experiment(content, source=cell.id)
    path = RUNS / f"{name}.toml"
    write_atomic(path, tomli_w.dumps(to_dict(experiment)).encode())
    return path


def run() -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    for name, cell in cells().items():
        if name in known():
            continue
        path = RUNS / name
        if not (path / "result.json").is_file():
            begun = (path / "config.toml").is_file()
            begin = ["--resume"] if begun else [str(config(name, cell)), "--out"]
            alfa("train", *begin, str(path))
        result = json.loads((path / "result.json").read_text())
        tested, _ = judge(Run(path))
        assert tested.accuracy == result["test"]["accuracy"], "the test is not repeatable"
        metrics = [json.loads(line) for line in (path / "metrics.jsonl").open()]
        content = {key: result[key] for key in result if key != "config"}
        found = {**content, "per_task": tested.per_task, "metrics": metrics, "cell": cell.id}
        write_atomic(
            RESULTS, (json.dumps({**known(), name: found}, sort_keys=True) + "\n").encode()
        )
        print(name, figure(found["test"]), flush=True)


def figure(test: dict[str, Any]) -> str:
    return f"{100 * test['accuracy']:.2f} +- {100 * test['accuracy_interval']:.2f}"


if __name__ == "__main__":
    commands = {f.__name__: f for f in (run,)}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
