"""Comparison of cells of Tables 5 and 6 on 5-way 5-shot CIFAR-FS with 4-CONV.

    python benchmarks/ablations.py run      trains and tests; can be interrupted and resumed
    python benchmarks/ablations.py report   writes docs/results/ablations.md

Needs the prepared dataset cifar-fs in `ALFA_DATA`. Each cell is an experiment of the paper with
another dataset and fewer iterations. All cells train on the same tasks in the same order and are
tested on the same tasks, so their differences are paired.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tomli_w
from _common import alfa, choose, figure, table, write_part

from alfa._io import write_atomic
from alfa.config import parse_experiment, to_dict
from alfa.evaluation import Evaluation, difference, evaluate_run
from alfa.paper import TABLES, Cell
from alfa.runs import Run

RUNS = Path("runs/ablations")
RESULTS = Path("docs/results/ablations.json")
PAGE = Path("docs/results/ablations.md")
NUM_ITERATIONS, NUM_TASKS = 1_500, 600
ROWS = ("maml-alpha", "maml-beta", "random-alpha", "random-beta")
INPUTS = ("weights-only", "gradients-only", "weights+gradients")
# Cells to compare: the first with the second.
PAIRS = (
    *((f"{row}-per-layer-adaptive", f"{row}-per-layer-fixed") for row in ROWS),
    *((f"random-beta-per-layer-{k}", f"random-alpha-per-layer-{k}") for k in ("adaptive", "fixed")),
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


def config(name: str, cell: Cell) -> Path:
    """Write the configuration of a cell on CIFAR-FS."""
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
            is_started = (path / "config.toml").is_file()
            words = ["--resume"] if is_started else [str(config(name, cell)), "--out"]
            alfa("train", *words, str(path))
        result = json.loads((path / "result.json").read_text())
        tested = evaluate_run(Run.open(path))
        assert tested.accuracy == result["test"]["accuracy"], "the test is not repeatable"
        metrics = [json.loads(line) for line in (path / "metrics.jsonl").open()]
        content = {key: result[key] for key in result if key != "config"}
        found = {**content, "per_task": tested.per_task, "metrics": metrics, "cell": cell.id}
        write_atomic(
            RESULTS, (json.dumps({**known(), name: found}, sort_keys=True) + "\n").encode()
        )
        print(name, figure(found["test"]), flush=True)


def report() -> None:
    results = known()
    if not results:
        sys.exit("There are no results; run `python benchmarks/ablations.py run` first.")
    published = {name: cell.published for name, cell in cells().items()}
    rows = [
        [
            f"`{results[name]['cell']}`",
            f"{published[name].value:.2f}",
            figure(results[name]["test"]),
            f"{results[name]['best_iteration']:,}",
            f"{results[name]['seconds'] / 60:.0f}",
        ]
        for name in cells()
        if name in results
    ]
    head = ["cell", "published", "CIFAR-FS, 1,500 iterations", "best iteration", "minutes"]
    lines = ["### Cells", "", *table(head, rows)]
    head = ["cell", "compared with", "published, miniImageNet", "CIFAR-FS, paired", "verdict"]
    rows = []
    for ours, theirs in PAIRS:
        if ours not in results or theirs not in results:
            continue
        over = difference(evaluation(results[ours]), evaluation(results[theirs]))
        assert over.interval is not None
        rows.append(
            [
                ours,
                theirs,
                f"{published[ours].value - published[theirs].value:+.2f}",
                f"{100 * over.mean:+.2f} +- {100 * over.interval:.2f}",
                "decided" if over.is_decided else "undecided",
            ]
        )
    lines += ["### Comparisons", "", *table(head, rows)]
    write_part(PAGE, "ablations.py", lines)


def evaluation(found: dict[str, Any]) -> Evaluation:
    test = {key: value for key, value in found["test"].items() if key != "iterations"}
    return Evaluation(**test, per_task=tuple(found["per_task"]))


if __name__ == "__main__":
    choose(__doc__, run, report)
