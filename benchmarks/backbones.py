"""Time per photo of the pretrained backbones, for docs/backbones.md.

    python benchmarks/backbones.py        # about 20 seconds, with `pip install 'alfa[photos]'`

The rounds of all backbones alternate, so that other load affects all of them.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from alfa.backbones import BACKBONES, backbone_cards

ROUNDS = 30


def main() -> None:
    cards = [card for card in backbone_cards() if card.is_installed]
    sides = [card.preprocessing.size for card in cards]
    photos = [np.random.default_rng(0).integers(0, 256, (1, 3, n, n), np.uint8) for n in sides]
    print("| backbone | 1 thread | 2 threads |\n| --- | --- | --- |")
    columns = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        # The memory layout of the weights depends on the number of threads.
        backbones = [BACKBONES[card.name]() for card in cards]
        times: list[list[float]] = [[] for _ in backbones]
        # The first round is slower.
        for number in range(ROUNDS + 1):
            for backbone, photo, seconds in zip(backbones, photos, times, strict=True):
                start = time.perf_counter()
                backbone.features(photo)
                if number:
                    seconds.append(time.perf_counter() - start)
        columns.append([f"{1e3 * statistics.median(seconds):.1f} ms" for seconds in times])
    for card, *row in zip(cards, *columns, strict=True):
        print(f"| `{card.name}` | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
