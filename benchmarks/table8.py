"""Table 8 of the paper: few-shot regression on sinusoids, MAML and ALFA + MAML.

    python benchmarks/table8.py run      trains all 36 runs, two at once; can be stopped and
                                         started again at any time
    python benchmarks/table8.py report   writes docs/results/table8.md and table8.json

The figures of the paper are quoted from its Table 8.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

RUNS = Path("runs/table8")
RESULTS = Path("docs/results")
SEEDS = (0, 1, 2)
NETWORKS = {"2x40": "[40, 40]", "3x80": "[80, 80, 80]"}
SHOTS = (5, 10, 20)
METHODS = {"maml": "MAML", "alfa": "ALFA + MAML"}
PAPER = {
    ("maml", "2x40"): ("1.24 +- 0.21", "0.75 +- 0.15", "0.49 +- 0.11"),
    ("maml", "3x80"): ("0.84 +- 0.14", "0.56 +- 0.09", "0.33 +- 0.06"),
    ("alfa", "2x40"): ("0.92 +- 0.19", "0.62 +- 0.16", "0.34 +- 0.07"),
    ("alfa", "3x80"): ("0.70 +- 0.15", "0.51 +- 0.10", "0.25 +- 0.06"),
}


def folder(method: str, network: str, shots: int, seed: int) -> Path:
    return RUNS / f"{method}-{network}-{shots}shot-seed{seed}"


def command(method: str, network: str, shots: int, seed: int) -> list[str]:
    path = folder(method, network, shots, seed)
    if (path / "config.toml").is_file():
        return ["alfa", "train", "--resume", str(path)]
    return [
        *("alfa", "train", f"sinusoid-{method}", "--out", str(path), "--seed", str(seed)),
        *("--set", f"tasks.num_support={shots}", "--set", f"model.hidden={NETWORKS[network]}"),
    ]


def run() -> None:
    """Train what is not trained yet, two runs at a time."""

    def train(cell: tuple[int, str, int, str]) -> None:
        seed, network, shots, method = cell
        path = folder(method, network, shots, seed)
        if (path / "result.json").is_file():
            return
        alfa = [sys.executable, "-c", "from alfa.cli.main import main; main()"]
        log = RUNS / f"{path.name}.log"
        with log.open("a") as file:
            arguments = command(method, network, shots, seed)[1:]
            subprocess.run([*alfa, *arguments], check=True, stdout=file, stderr=file)
        result = json.loads((path / "result.json").read_text())
        print(path.name, result["test"]["loss"], result["seconds"], flush=True)

    RUNS.mkdir(parents=True, exist_ok=True)
    workers = max(1, min(2, os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(train, product(SEEDS, NETWORKS, SHOTS, METHODS)))


if __name__ == "__main__":
    {"run": run, "report": lambda: report()}[sys.argv[1]]()
