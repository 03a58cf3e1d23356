"""What `alfa reproduce --dry-run` expects, beside what a short real run then takes.

    python benchmarks/estimate.py     measures, writes docs/results/estimate.md

Needs the prepared dataset cifar-fs where `ALFA_DATA` says, and Linux, whose /proc tells how much
memory a process has of its own; about ten minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import command

PAGE = Path("docs/results/estimate.md")
CELLS = {
    "table8 --shots 10 --rows alfa+maml --iterations 3000": "perceptrons, sine curves",
    "tableB --dataset cifar-fs --shots 5 --rows alfa+maml/conv4 --iterations 500": (
        "4-CONV, CIFAR-FS"
    ),
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
    wanted = {
        cell: title
        for cell, title in CELLS.items()
        if not sys.argv[1:] or cell.startswith(tuple(sys.argv[1:]))
    }
    # The program's own: that of a run in which next to nothing happens.
    with tempfile.TemporaryDirectory() as out:
        words = ["reproduce", "table8", "--shots", "5", "--rows", "maml", "--quick", "--out", out]
        start, program = watched(command(*words))
    rows = []
    for cell, title in wanted.items():
        with tempfile.TemporaryDirectory() as out:
            words = ["reproduce", *cell.split(), "--out", out]
            done = subprocess.run(
                command(*words, "--dry-run", "--json"),
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            costs = json.loads(done.stdout).values()
            expected = sum(cost["seconds"] for cost in costs), max(c["memory"] for c in costs)
            seconds, memory = watched(command(*words))
        rows.append(
            f"| {title} | `{cell}` | {expected[0]:.0f} s | {seconds:.0f} s | "
            f"{seconds / expected[0] - 1:+.0%} | {expected[1] / 1e9:.2f} GB | "
            f"{memory / 1e9:.2f} GB | {memory / expected[1] - 1:+.0%} |"
        )
        print(rows[-1], flush=True)
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
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
