"""Table 8 of the paper: few-shot regression on sinusoids with MAML and ALFA + MAML.

python benchmarks/table8.py run      trains the runs that table8.json does not contain, two at a
                                     time; can be interrupted and resumed
python benchmarks/table8.py report   writes docs/results/table8.json and table8.md
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from _common import choose, command, write_part

from alfa.methods import METHODS as ALL_METHODS

RUNS = Path("runs/table8")
RESULTS = Path("docs/results/table8.json")
PAGE = Path("docs/results/table8.md")
SEEDS = (0, 1, 2)
NETWORKS = {"2x40": "[40, 40]", "3x80": "[80, 80, 80]"}
SHOTS = (5, 10, 20)
# The names of the methods in run folders and in table8.json.
METHODS = {"maml": "maml", "alfa": "alfa+maml"}
PAPER = {
    ("maml", "2x40"): ("1.24 +- 0.21", "0.75 +- 0.15", "0.49 +- 0.11"),
    ("maml", "3x80"): ("0.84 +- 0.14", "0.56 +- 0.09", "0.33 +- 0.06"),
    ("alfa", "2x40"): ("0.92 +- 0.19", "0.62 +- 0.16", "0.34 +- 0.07"),
    ("alfa", "3x80"): ("0.70 +- 0.15", "0.51 +- 0.10", "0.25 +- 0.06"),
}


def name_of(method: str, network: str, shots: int, seed: int) -> str:
    return f"{method}-{network}-{shots}shot-seed{seed}"


def train_words(method: str, network: str, shots: int, seed: int) -> list[str]:
    path = RUNS / name_of(method, network, shots, seed)
    return [
        *("train", "sinusoid", "--method", METHODS[method]),
        *("--out", str(path), "--seed", str(seed)),
        *("--set", f"tasks.num_support={shots}", "--set", f"model.hidden={NETWORKS[network]}"),
    ]


def results() -> dict[str, Any]:
    """Return the results of every run, from table8.json and from the run folders."""
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for path in sorted(RUNS.glob("*/result.json")):
        result = json.loads(path.read_text())
        known[path.parent.name] = {
            key: result[key]
            for key in ("test", "val_loss", "best_iteration", "num_iterations", "seconds")
        }
        known[path.parent.name]["skipped"] = result.get("skipped", 0)
    return known


def run() -> None:
    """Train the missing runs, two at a time."""
    known = results()

    def train(cell: tuple[int, str, int, str]) -> None:
        seed, network, shots, method = cell
        path = RUNS / name_of(method, network, shots, seed)
        if path.name in known:
            return
        arguments = train_words(method, network, shots, seed)
        if (path / "config.toml").is_file():
            arguments = ["train", "--resume", str(path)]
        with (RUNS / f"{path.name}.log").open("a") as log:
            subprocess.run(command(*arguments), check=True, stdout=log, stderr=log)
        result = json.loads((path / "result.json").read_text())
        print(path.name, result["test"]["loss"], result["seconds"], flush=True)

    RUNS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        list(pool.map(train, product(SEEDS, NETWORKS, SHOTS, METHODS)))


def cell(known: dict[str, Any], method: str, network: str, shots: int) -> str:
    tests = [
        known[name]["test"]
        for name in (name_of(method, network, shots, seed) for seed in SEEDS)
        if name in known
    ]
    if not tests:
        return "-"
    mean = statistics.mean(test["loss"] for test in tests)
    interval = math.hypot(*(test["interval"] for test in tests)) / len(tests)
    seeds = ", ".join(f"{test['loss']:.3f}" for test in tests)
    return f"**{mean:.3f}** +- {interval:.3f} ({seeds})"


def report() -> None:
    """Write the results and the page."""
    known = results()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    lines = []
    for network, title in (
        ("2x40", "2 hidden layers of 40 units"),
        ("3x80", "3 hidden layers of 80 units"),
    ):
        header = " | ".join(f"{shots}-shot" for shots in SHOTS)
        lines += [f"### {title}", "", f"| method | {header} |", "| --- | --- | --- | --- |"]
        for method, name in METHODS.items():
            label = ALL_METHODS[name].title
            row = " | ".join(cell(known, method, network, shots) for shots in SHOTS)
            lines.append(f"| {label} | {row} |")
            lines.append(f"| {label}, paper | {' | '.join(PAPER[method, network])} |")
        lines.append("")
    write_part(PAGE, "table8.py", lines)
    total = len(SEEDS) * len(NETWORKS) * len(SHOTS) * len(METHODS)
    print(f"{len(known)} of {total} runs, {sum(r['seconds'] for r in known.values()):.0f} s")


if __name__ == "__main__":
    choose(__doc__, run, report)
