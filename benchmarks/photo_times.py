"""Times of the photo classifier on generated photos.

    python benchmarks/photo_times.py run      measures all times, in about two minutes
    python benchmarks/photo_times.py report   writes docs/results/photo-times.md

Needs the extras `photos` and `export`. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from _common import choose, table, write_part
from PIL import Image

from alfa import FewShotClassifier
from alfa._io import write_atomic
from alfa._runtime import usable_cpus
from alfa.export import export_onnx

RESULTS = Path("docs/results/photo-times.json")
PAGE = Path("docs/results/photo-times.md")
ROUNDS = 5
# The sizes of the photos: 12 megapixels of a camera, and a photo of a web page.
LARGE, SMALL = (4000, 3000), (640, 480)
WAY, SHOT = 5, 5
MANY = 200
FIT = """
import sys, time
start = time.perf_counter()
from alfa import FewShotClassifier
files = sys.argv[1:]
FewShotClassifier().fit(files, [number % {way} for number in range(len(files))])
print(time.perf_counter() - start)
"""


def photos(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """Write JPEG files of blurred noise, which compress like real photos."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        noise = rng.integers(0, 256, (60, 80, 3), np.uint8)
        grain = rng.integers(0, 24, (size[1], size[0], 3), np.uint8)
        smooth = np.asarray(Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)) // 10 * 9
        paths.append(folder / f"{size[0]}-{number}.jpg")
        Image.fromarray(smooth + grain).save(paths[-1], quality=90)
    return paths


def timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def run() -> None:
    labels = [number % WAY for number in range(WAY * SHOT)]
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        large, small = (photos(Path(name), WAY * SHOT, size) for size in (LARGE, SMALL))
        code = [sys.executable, "-c", FIT.format(way=WAY), *map(str, large)]
        clf = FewShotClassifier().fit(large, labels)
        exported = export_onnx(clf, Path(name) / "photos.onnx")
        session = onnxruntime.InferenceSession(exported.path)
        images = [np.asarray(Image.open(path))[None] for path in small]
        rng = np.random.default_rng(0)
        # Photos of few pixels, because their decoding is not measured.
        many = rng.integers(0, 256, (MANY * SHOT, 8, 8, 3), np.uint8)
        classes = [number % MANY for number in range(MANY * SHOT)]
        wide = FewShotClassifier().fit(many, classes)
        for _ in range(ROUNDS):
            # A new classifier has no features of the photos that it predicts.
            new = FewShotClassifier(num_folds=0).fit(many[:WAY], list(range(WAY)))
            measured = {
                "fit, new process": float(
                    subprocess.run(code, check=True, stdout=subprocess.PIPE, text=True).stdout
                ),
                "fit, warm process": timed(lambda: FewShotClassifier().fit(large, labels)),
                "predict, large": timed(lambda clf=new: clf.predict(large)) / len(large),
                "predict, small": timed(lambda clf=new: clf.predict(small)) / len(small),
                "fit many classes, after embedding": timed(
                    lambda: wide.partial_fit(many[:1], classes[:1])
                ),
                "onnxruntime": statistics.median(
                    timed(lambda x=x: session.run(None, {"images": x})) for x in images
                ),
            }
            for key, seconds in measured.items():
                times.setdefault(key, []).append(seconds)
    machine = f"{usable_cpus()} CPU cores ({torch.backends.cpu.get_cpu_capability()})"
    found = {"times": times, "machine": machine, "bytes": len(exported.content)}
    write_atomic(RESULTS, (json.dumps(found) + "\n").encode())
    print(json.dumps({key: statistics.median(values) for key, values in times.items()}, indent=1))


def report() -> None:
    found = json.loads(RESULTS.read_text())
    names = {
        "fit, new process": "`fit` on 25 photos of 12 megapixels, in a new process, with imports",
        "fit, warm process": "`fit` on 25 photos of 12 megapixels, in a warm process",
        "predict, large": "`predict`, for each file of 12 megapixels",
        "predict, small": "`predict`, for each file of 640 x 480",
        "fit many classes, after embedding": "200 classes with 5 photos each, after embedding",
        "onnxruntime": "onnxruntime, for each decoded photo of 640 x 480",
    }
    rows = []
    for key, name in names.items():
        values = sorted(found["times"][key])
        unit, scale = ("s", 1) if values[0] > 0.2 else ("ms", 1000)
        places = 1 if scale == 1 else 0
        cells = [f"{scale * v:.{places}f} {unit}" for v in (statistics.median(values), values[-1])]
        rows.append([name, *cells])
    lines = table(["", "median", "slowest of 5"], rows)
    lines += [f"Machine: {found['machine']}. The ONNX file has {found['bytes'] / 1e6:.1f} MB.", ""]
    write_part(PAGE, "photo_times.py", lines)


if __name__ == "__main__":
    choose(__doc__, run, report)
