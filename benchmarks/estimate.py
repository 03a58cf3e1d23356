"""Comparison of the estimates of `alfa reproduce --dry-run` with short runs.

    python benchmarks/estimate.py sines|images|all     measures and writes docs/results/estimate.md

Needs the prepared dataset cifar-fs in `ALFA_DATA`, and Linux, whose /proc reports the memory of a
process. Both measurements take about ten minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _common import command

from alfa._io import write_atomic

PAGE = Path("docs/results/estimate.md")
RESULTS = Path("docs/results/estimate.json")
CELLS = {
    "sines": "table8 --shots 10 --rows alfa+maml --iterations 3000",
    "images": "tableB --dataset cifar-fs --shots 5 --rows alfa+maml/conv4 --iterations 500",
}


def private_memory(process: int) -> int:
    """Return the anonymous memory of a process in bytes, without mapped files such as datasets."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("RssAnon")]
    return 1024 * int(found[0]) if found else 0


def measure(words: list[str]) -> tuple[float, int]:
    """Run a command; return its seconds and its peak memory."""
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, private_memory(process.pid))
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(words[3:])} failed.")
    return time.perf_counter() - began, peak


def main(wanted: Sequence[str]) -> None:
    # The overhead of the command: a run with almost no work.
    with tempfile.TemporaryDirectory() as out:
        words = ["reproduce", "table8", "--shots", "5", "--rows", "maml", "--quick", "--out", out]
        overhead = measure(command(*words))
    found = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name in wanted:
        with tempfile.TemporaryDirectory() as out:
            words = ["reproduce", *CELLS[name].split(), "--out", out]
            done = subprocess.run(
                command(*words, "--dry-run", "--json"),
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            costs = json.loads(done.stdout).values()
            seconds, memory = measure(command(*words))
        found[name] = {
            "expected": [sum(cost["seconds"] for cost in costs), max(c["memory"] for c in costs)],
            "taken": [seconds, memory],
        }
        write_atomic(RESULTS, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
        print(name, found[name], flush=True)
    write(found, *overhead)


def write(found: dict[str, dict[str, list[float]]], start: float, memory_at_start: int) -> None:
    """Write the page."""
    rows = []
    for name, cell in CELLS.items():
        if name in found:
            expected, taken = found[name]["expected"], found[name]["taken"]
            errors = [f"{y / x - 1:+.0%}" for x, y in zip(expected, taken, strict=True)]
            times = f"{expected[0]:.0f} s | {taken[0]:.0f} s | {errors[0]}"
            sizes = f"{expected[1] / 1e9:.2f} GB | {taken[1] / 1e9:.2f} GB | {errors[1]}"
            rows.append(f"| {name} | `{cell}` | {times} | {sizes} |")
    columns = ("estimated time", "time", "deviation", "estimated memory", "memory", "deviation")
    text = f"""# Estimated and actual cost

`alfa reproduce --dry-run` estimates the cost of the options below. Then the same command runs
without `--dry-run`, on two CPU cores. The time includes {start:.0f} s of overhead that every
command has. Memory is the peak of the process, without mapped files; a run with almost no work uses
{memory_at_start / 1e9:.2f} GB.

| workload | `alfa reproduce` | {" | ".join(columns)} |
|{" --- |" * 8}
{chr(10).join(rows)}

## Reproduce

```
python benchmarks/estimate.py all
```
"""
    write_atomic(PAGE, text.encode())


if __name__ == "__main__":
    names = sys.argv[1:]
    if not names or not set(names) <= {*CELLS, "all"}:
        sys.exit(__doc__)
    main(list(CELLS) if "all" in names else names)
