"""What data costs: preparing, opening, and drawing episodes beside an iteration.

    python benchmarks/data.py PREPARED SOURCE     measures, writes docs/results/data.md

PREPARED is a folder with the prepared datasets cifar-fs (32) and miniimagenet (84); SOURCE is a
folder with JPEGs of 84 x 84 pixels. Copies of them, as they are and enlarged to the usual size of a
photo in ImageNet, are prepared with one worker, with threads and with processes.
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


def photos(source: Path, folder: Path, *, count: int, size: tuple[int, int] | None) -> None:
    """A folder of class folders with `count` JPEGs, enlarged to `size`."""
    files = sorted(source.rglob("*.jpg"))
    if not files:
        sys.exit(f"{source} holds no *.jpg.")
    for number in range(count):
        path = folder / f"class-{number % 20:02d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = files[number % len(files)]
        if size is None:
            shutil.copy(file, path)
        else:
            Image.open(file).convert("RGB").resize(size, Image.Resampling.BICUBIC).save(path)


def preparing(path: Path) -> list[list[str]]:
    """Images per second with one worker, with threads and with processes, in turns."""
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
        rows.append([f"{count:,} of {title}", *(f"{rate:,.0f}" for rate in rates)])
    return rows


def main(prepared: Path, source: Path) -> None:
    processes_from = _workers.PROCESSES_FROM
    draws = [drawing("cifar-fs", 32, prepared), drawing("miniimagenet", 84, prepared)]
    rates = preparing(source)
    head = ["dataset", "opening it", "drawing 2 tasks", "an iteration on them", "part of it"]
    text = f"""# What data costs

2 cores, torch {torch.__version__}. ALFA + MAML, 5-way 5-shot, 15 queries, 4-CONV; the median of
{ROUNDS - 1} rounds, drawing and iterating in turns, from a file that is mapped into memory.

{chr(10).join(table(head, draws))}
Preparing JPEGs at 84 x 84, images per second, the best of 3 rounds, in turns:

{chr(10).join(table(["images", "one worker", "2 threads", "2 processes"], rates))}
By default a worker for every core: threads, and processes from {processes_from:,} image files on.
Decoding a photo is nearly all of the work, and threads share it. Around a small image Python has
more to do than the decoder, and threads do that in turns; processes do not, but take about 3 s to
start, and hand their pixels over.

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
