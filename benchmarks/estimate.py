"""What `alfa reproduce --dry-run` expects, beside what a short real run then takes.

    python benchmarks/estimate.py [NAME...]     measures, writes docs/results/estimate.md

NAME is sines or images; both by default. Needs the prepared dataset cifar-fs where `ALFA_DATA`
says, and Linux, whose /proc tells how much memory a process has of its own; about ten minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import command

from alfa._io import write_atomic

PAGE = Path("docs/results/estimate.md")
RESULTS = Path("docs/results/estimate.json")
CELLS = {
    "sines": "table8 --shots 10 --rows alfa+maml --iterations 3000",
    "images": "tableB --dataset cifar-fs --shots 5 --rows alfa+maml/conv4 --iterations 500",
}


def own_memory(process: int) -> int:
    """Bytes that a process has of its own: mapped files, such as a dataset's, do not count."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("RssAnon")]
    return 1024 * int(found[0]) if found else 0


def watched(words: list[str]) -> tuple[float, int]:
    """Seconds that a command takes, and the most memory that it had."""
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, own_memory(process.pid))
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(words[3:])} failed.")
    return time.perf_counter() - began, most


def main() -> None:
    # The program's own: that of a run in which next to nothing happens.
    with tempfile.TemporaryDirectory() as out:
        words = ["reproduce", "table8", "--shots", "5", "--rows", "maml", "--quick", "--out", out]
        start, program = watched(command(*words))
    found = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    wanted = sys.argv[1:] or list(CELLS)
    for name in wanted:
        if name not in CELLS:
            sys.exit(f"{name!r} is none of {', '.join(CELLS)}.\n\n{__doc__}")
        with tempfile.TemporaryDirectory() as out:
            words = ["reproduce", *CELLS[name].split(), "--out", out]
            done = subprocess.run(
                command(*words, "--dry-run", "--json"),
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            costs = json.loads(done.stdout).values()
            seconds, memory = watched(command(*words))
        found[name] = {
            "expected": [sum(cost["seconds"] for cost in costs), max(c["memory"] for c in costs)],
            "taken": [seconds, memory],
        }
        write_atomic(RESULTS, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
        print(name, found[name], flush=True)
    write(found, start, program)


def write(found: dict[str, dict[str, list[float]]], start: float, program: int) -> None:
    """The page."""
    rows = []
    for name, cell in CELLS.items():
        if name in found:
            (seconds, memory), (took, had) = found[name]["expected"], found[name]["taken"]
            times = f"{seconds:.0f} s | {took:.0f} s | {took / seconds - 1:+.0%}"
            sizes = f"{memory / 1e9:.2f} GB | {had / 1e9:.2f} GB | {had / memory - 1:+.0%}"
            rows.append(f"| {name} | `{cell}` | {times} | {sizes} |")
    head = "| | `alfa reproduce ...` | time expected | taken | | memory expected | taken | |"
    text = f"""# What a dry run expects, and what a run takes

`alfa reproduce ... --dry-run`, then the same command without it, on 2 CPU cores. The time is that
of the whole command, {start:.0f} s of which pass however little there is to do; memory is the most
that the process had of its own, {program / 1e9:.2f} GB of which it has in a run in which next to
nothing happens.

{head}
|{" --- |" * 8}
{chr(10).join(rows)}

```
python benchmarks/estimate.py
```
"""
    write_atomic(PAGE, text.encode())


if __name__ == "__main__":
    main()
