"""Time of preparing datasets and of sampling tasks.

    python benchmarks/data.py PREPARED SOURCE     measures and writes docs/results/data.md

PREPARED is a folder with the prepared datasets cifar-fs (32 x 32) and miniimagenet (84 x 84), and
SOURCE a folder with JPEG files of 84 x 84 pixels. The script prepares copies of these files, at
their size and enlarged to the usual size of ImageNet photos, with one worker, with threads, and
with processes.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _common import table
from PIL import Image

from alfa import ALFA, Conv4, LearnedInit, Learner, cross_entropy, tune
from alfa.data import FewShot, _workers, open_images, prepare
from alfa.data.sources import SOURCES

PAGE = Path("docs/results/data.md")
NUM_TASKS, ROUNDS = 2, 12


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def sampling(dataset: str, size: int, root: Path) -> list[str]:
    """Time alternating iterations and the sampling of their tasks."""
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


def photos(source: Path, folder: Path, *, count: int, size: tuple[int, int] | None) -> None:
    """Write `count` JPEG files, enlarged to `size`, into class folders."""
    files = sorted(source.rglob("*.jpg"))
    if not files:
        sys.exit(f"{source} must contain *.jpg files.")
    for number in range(count):
        path = folder / f"class-{number % 20:02d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = files[number % len(files)]
        if size is None:
            shutil.copy(file, path)
        else:
            Image.open(file).convert("RGB").resize(size, Image.Resampling.BICUBIC).save(path)


def preparing(path: Path) -> list[list[str]]:
    """Measure images per second with one worker, threads, and processes, in alternation."""
    ways = {"one worker": (1, sys.maxsize), "threads": (None, sys.maxsize), "processes": (None, 0)}
    rows = []
    for title, size, count in (("84 x 84", None, 48_000), ("500 x 375", (500, 375), 4_000)):
        best: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            photos(path, Path(folder), count=count, size=size)
            for _ in range(3):
                for way, (workers, processes_from) in ways.items():
                    _workers.PROCESSES_FROM = processes_from
                    with tempfile.TemporaryDirectory() as root:
                        source = SOURCES.get("folder")()
                        work = partial(
                            prepare, source, Path(folder), root=Path(root), size=84, workers=workers
                        )
                        seconds = timed(work)
                    best[way] = min(best.get(way, seconds), seconds)
        rates = [count / best[way] for way in ways]
        rows.append([f"{count:,} images, {title}", *(f"{rate:,.0f}" for rate in rates)])
    return rows


def main(prepared: Path, source: Path) -> None:
    processes_from = _workers.PROCESSES_FROM
    draws = [sampling("cifar-fs", 32, prepared), sampling("miniimagenet", 84, prepared)]
    rates = preparing(source)
    head = ["dataset", "opening", "sampling 2 tasks", "iteration", "sampling / iteration"]
    text = f"""# Data: sampling and preparation

Two CPU cores, torch {torch.__version__}. ALFA + MAML with 4-CONV, 5-way 5-shot, 15 queries per
class. Times are medians of {ROUNDS - 1} rounds that alternate between sampling and iterations. The
images are in a memory-mapped file.

{chr(10).join(table(head, draws))}
Preparation of JPEG files at 84 x 84 pixels, in images per second, as the best of 3 alternating
rounds:

{chr(10).join(table(["images", "one worker", "2 threads", "2 processes"], rates))}
By default, one worker runs per core: threads for fewer than {processes_from:,} image files, and
processes otherwise. With large photos, decoding dominates, and it runs in parallel in threads.
With small images, Python's overhead dominates, and only processes run it in parallel. They take
about 3 s to start and have to transfer the pixels.

## Reproduce

```
python benchmarks/data.py PREPARED SOURCE
```
"""
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tune()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
