"""What data costs: preparing, opening, and drawing episodes beside an iteration.

    python benchmarks/data.py PREPARED SOURCE     measures, writes docs/results/data.md

PREPARED is a folder with the prepared datasets cifar-fs (32) and miniimagenet (84); SOURCE is where
the images of miniimagenet lie, which are prepared again, with one worker and with all.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from alfa import ALFA, Conv4, LearnedInit, Learner, cross_entropy
from alfa.data import SOURCES, FewShot, open_images, prepare

PAGE = Path("docs/results/data.md")
NUM_TASKS, ROUNDS = 2, 12


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def drawing(dataset: str, size: int, root: Path) -> list[str]:
    """An iteration and the drawing of its episode, in turns."""
    opening = min(timed(lambda: open_images(dataset, size=size, root=root)) for _ in range(5))
    tasks = FewShot(open_images(dataset, size=size, root=root), way=5, shot=5, num_query=15)
    model = Conv4(tasks.input_shape, 5, generator=torch.Generator().manual_seed(0))
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=ALFA(init.layers), loss=cross_entropy)
    draws, iterations = [], []
    for turn in range(ROUNDS):
        episode = tasks.episode(NUM_TASKS * turn, num_tasks=NUM_TASKS)
        draws.append(
            timed(lambda t=turn: tasks.episode(NUM_TASKS * (t + 100), num_tasks=NUM_TASKS))
        )
        iterations.append(timed(lambda e=episode: learner(e).query_losses.mean().backward()))
    draw, iteration = statistics.median(draws[1:]), statistics.median(iterations[1:])
    return [
        f"{dataset}, {size} x {size}",
        f"{opening * 1e3:.1f} ms",
        f"{draw * 1e3:.1f} ms",
        f"{iteration * 1e3:.0f} ms",
        f"{draw / iteration:.1%}",
    ]


def preparing(path: Path) -> list[list[str]]:
    """Images per second, with one worker and with all, in turns."""
    best: dict[int | None, float] = {}
    count = 0
    for _ in range(3):
        for workers in (1, None):
            with tempfile.TemporaryDirectory() as root:
                source = SOURCES.get("miniimagenet")()
                began = time.perf_counter()
                store = prepare(source, path, root=Path(root), workers=workers)
                seconds = time.perf_counter() - began
            count = store.index.shape[0]
            best[workers] = min(best.get(workers, seconds), seconds)
    names = {1: "one worker", None: "a worker for every core"}
    return [[names[w], f"{count / seconds:.0f}"] for w, seconds in best.items()]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main(prepared: Path, source: Path) -> None:
    draws = [drawing("cifar-fs", 32, prepared), drawing("miniimagenet", 84, prepared)]
    head = ["dataset", "opening it", "drawing 2 tasks", "an iteration on them", "part of it"]
    text = f"""# What data costs

2 cores, torch {torch.__version__}. ALFA + MAML, 5-way 5-shot, 15 queries, 4-CONV; the median of
{ROUNDS - 1} rounds, drawing and iterating in turns, from a file that is mapped into memory.

{table(head, draws)}

Preparing the 84 x 84 JPEGs of miniImageNet, the best of 3 rounds, in turns:

{table(["", "images per second"], preparing(source))}

Workers are threads. On images this small two are no faster than one, as most of the time is Python
around the decoder.

```
python benchmarks/data.py PREPARED SOURCE
```
"""
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
