"""Times, memory, and simultaneous clients of `alfa serve`.

    python benchmarks/serve.py times              start, learning, and predictions
    python benchmarks/serve.py clients [NUMBER]   50 clients run the whole workflow three times
    python benchmarks/serve.py bombs              memory for ten images of 8000 x 8000 pixels
    python benchmarks/serve.py report             writes docs/results/serve.md

All parts start the command `alfa serve photos` in another process and send generated photos of 1200
x 900 pixels. Each client of `clients` has its own classes and photos; its answers must have the
probabilities of a FewShotClassifier that is fitted here to the same photos, and its saved examples
must be its own files. After the first round, the memory of the server must not grow by more than
5 %. The exit code is 1 if a check fails.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
from _common import choose, command, table, write_part
from PIL import Image

from alfa import FewShotClassifier, Run
from alfa._io import write_atomic
from alfa._runtime import usable_cpus
from alfa.data import ImageFormat
from alfa.estimator import PreparedImages

RESULTS, PAGE = Path("docs/results/serve.json"), Path("docs/results/serve.md")
MODEL, SHOT, SIZE = "photos", 4, (900, 1200)
NUM_ROUNDS, NUM_STARTS, NUM_REPEATS = 3, 3, 20
# Seconds for a round, and the largest growth of the memory and difference of probabilities.
PATIENCE, MAX_GROWTH, TOLERANCE = 1200.0, 0.05, 1e-4


def photo(class_seed: int, number: int) -> bytes:
    """Generate a photo: colored shapes of a class with random positions, as JPEG."""
    own, rng = np.random.default_rng(class_seed), np.random.default_rng([class_seed, number])
    height, width = SIZE
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:] = own.integers(0, 256, 3)
    for color in own.integers(0, 256, (6, 3)):
        top, left = rng.integers(0, height - 300), rng.integers(0, width - 300)
        down, right = rng.integers(80, 300, 2)
        pixels[top : top + down, left : left + right] = color
    noise = rng.integers(-12, 12, (*SIZE, 1))
    image = Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """Start the command, and yield its address and process number."""
    words = command("serve", MODEL, "--port", "0")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.findall(r"http://[\d.:]+", process.stdout.readline())[0]
            yield address, process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def memory(pid: int, name: str = "VmRSS") -> float:
    """Return the memory of a process in megabytes."""
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def save(name: str, content: dict[str, Any]) -> None:
    """Add a part to the results."""
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    known[name] = {"cores": usable_cpus(), "load": round(os.getloadavg()[0], 1), **content}
    text = json.dumps(known, indent=2)
    print(json.dumps(known[name], indent=2))
    write_atomic(RESULTS, f"{text}\n".encode())


def times() -> None:
    """Measure the start, learning of 25 photos, and predictions."""
    starts = []
    for _ in range(NUM_STARTS):
        begin = time.perf_counter()
        with server() as (address, _):
            httpx.get(f"{address}/", trust_env=False).raise_for_status()
            starts.append(time.perf_counter() - begin)
    with server() as (address, _), httpx.Client(base_url=address, trust_env=False) as web:
        web.timeout = httpx.Timeout(60)
        path = web.post("/api/v1/sessions").headers["location"]
        uploads = []
        for number in range(5):
            made = web.post(f"{path}/classes", json={"name": f"class {number}"}).json()
            target = f"{path}/classes/{made['classes'][-1]['id']}/examples"
            for index in range(5):
                content = photo(number, index)
                uploads.append(timed(lambda c=content, t=target: send(web, t, c)))
        learning = [timed(lambda: web.post(f"{path}/learn")) for _ in range(NUM_REPEATS)]
        new = [photo(number % 5, 100 + number) for number in range(NUM_REPEATS)]
        predictions = [timed(lambda c=c: send(web, f"{path}/predict", c)) for c in new]
        export = timed(lambda: web.get(f"{path}/export", params={"format": "onnx"}))
    found = {"start": starts, "upload": uploads, "learn": learning, "predict": predictions}
    save("times", {**{name: summary(own) for name, own in found.items()}, "onnx_s": export})


def send(web: httpx.Client, path: str, content: bytes) -> httpx.Response:
    return web.post(path, files={"files": ("a.jpg", content)})


def timed(function: Callable[[], httpx.Response]) -> float:
    """Return the seconds of a request."""
    begin = time.perf_counter()
    function().raise_for_status()
    return time.perf_counter() - begin


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Summarize times in milliseconds."""
    return {
        "count": len(seconds),
        "min_ms": round(1000 * min(seconds), 1),
        "median_ms": round(1000 * statistics.median(seconds), 1),
        "max_ms": round(1000 * max(seconds), 1),
    }


def bombs() -> None:
    """Send ten images of one color and 8000 x 8000 pixels at the same time."""
    buffer = io.BytesIO()
    Image.new("RGBA", (8000, 8000), (120, 130, 10, 255)).save(buffer, "PNG", optimize=True)
    content = buffer.getvalue()

    async def attack(address: str) -> list[int]:
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE, trust_env=False) as web:
            paths = [(await web.post("/api/v1/sessions")).headers["location"] for _ in range(10)]
            # The first photo loads what the server needs anyway.
            for path in paths[:1]:
                await web.post(f"{path}/unlabeled", files={"files": ("a.jpg", photo(0, 0))})
            before.append(memory(pid))
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            posts = [web.post(f"{p}/unlabeled", files={"files": ("a.png", content)}) for p in paths]
            answers = await asyncio.gather(*posts)
            return [len(answer.json()["added"]) for answer in answers]

    before: list[float] = []
    with server() as (address, pid):
        added = asyncio.run(attack(address))
        peak = memory(pid, "VmHWM")
    found = {"file_kb": len(content) // 1000, "added": sum(added), "before_mb": before[0]}
    save("bombs", {**found, "peak_mb": peak, "growth_mb": round(peak - before[0], 1)})


@dataclass(frozen=True)
class Task:
    """The photos of a client, and the probabilities that it must receive."""

    names: list[str]
    files: list[list[bytes]]
    new: list[bytes]
    expected: np.ndarray


def make_tasks(count: int) -> list[Task]:
    """Create tasks of two to five classes that no other client has."""
    run = Run.open(MODEL).keep_models()
    image_format = ImageFormat.of(run.signature)

    def prepared(contents: Sequence[bytes]) -> PreparedImages:
        return PreparedImages.of(
            image_format, np.stack([image_format.decode(content)[0] for content in contents])
        )

    tasks = []
    for number in range(count):
        way = 2 + number % 4
        seeds = [100 * number + place for place in range(way)]
        files = [[photo(seed, index) for index in range(SHOT)] for seed in seeds]
        new = [photo(seeds[index % way], 50 + index) for index in range(3)]
        support = prepared([content for own in files for content in own])
        clf = FewShotClassifier(run, head="auto").fit(support, np.repeat(np.arange(way), SHOT))
        names = [f"client {number} class {place}" for place in range(way)]
        tasks.append(Task(names, files, new, clf.predict_proba(prepared(new))))
    return tasks


@dataclass
class Figures:
    """Response times in seconds, and errors."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    max_difference: float = 0.0


async def ask(
    web: httpx.AsyncClient, figures: Figures, name: str, method: str, path: str, **options: Any
) -> httpx.Response:
    """Send a request, and repeat it as long as the server is busy."""
    begin = time.perf_counter()
    while (answer := await web.request(method, path, **options)).status_code == 429:
        await asyncio.sleep(float(answer.headers["retry-after"]))
    figures.seconds.setdefault(name, []).append(time.perf_counter() - begin)
    answer.raise_for_status()
    return answer


async def workflow(web: httpx.AsyncClient, task: Task, figures: Figures) -> None:
    """Run the whole workflow of a client, and check every answer."""

    async def call(name: str, method: str, path: str, **options: Any) -> httpx.Response:
        return await ask(web, figures, name, method, path, **options)

    own = (await call("session", "POST", "/api/v1/sessions")).headers["location"]
    for name, contents in zip(task.names, task.files, strict=True):
        state = (await call("change", "POST", f"{own}/classes", json={"name": name})).json()
        target = f"{own}/classes/{state['classes'][-1]['id']}/examples"
        for number, content in enumerate(contents):
            files = {"files": (f"{number}.jpg", content)}
            await call("upload", "POST", target, files=files)
    files = {"files": ("new.jpg", task.new[0])}
    added = (await call("upload", "POST", f"{own}/unlabeled", files=files)).json()
    state = (await call("learn", "POST", f"{own}/learn")).json()
    names = {each["id"]: each["name"] for each in state["classes"]}
    if list(names.values()) != task.names:
        figures.errors.append(f"the classes are {names}, expected {task.names}")
    for number, content in enumerate(task.new):
        files = {"files": (f"{number}.jpg", content)}
        [found] = (await call("predict", "POST", f"{own}/predict", files=files)).json()[
            "predictions"
        ]
        shares = {each["name"]: each["probability"] for each in found["probabilities"]}
        if sorted(shares) != sorted(task.names):
            figures.errors.append(f"the answer has {sorted(shares)}, expected {task.names}")
            continue
        row = np.array([shares[name] for name in task.names])
        difference = float(np.abs(row - task.expected[number]).max())
        figures.max_difference = max(figures.max_difference, difference)
        if difference > TOLERANCE:
            figures.errors.append(f"{task.names[0]}: probabilities differ by {difference:.2g}")
    await call("label-next", "POST", f"{own}/label-next")
    body = {"class_id": next(iter(names))}
    await call("change", "PATCH", f"{own}/examples/{added['added'][0]}", json=body)
    await call("change", "POST", f"{own}/undo")
    path = f"{own}/export?format=examples"
    content = (await call("export", "GET", path)).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        saved = [archive.read(name) for name in archive.namelist()]
    if saved != [each for contents in task.files for each in contents]:
        figures.errors.append(f"{task.names[0]}: the saved examples are not the sent ones")
    await call("change", "DELETE", own)


def clients(number: str = "50") -> None:
    """Run simultaneous clients."""
    tasks = make_tasks(int(number))
    figures, used = Figures(), []

    async def rounds(address: str, pid: int) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=address, limits=limits, timeout=PATIENCE, trust_env=False
        ) as web:
            used.append(memory(pid))
            for turn in range(NUM_ROUNDS):
                done = await asyncio.gather(
                    *(workflow(web, task, figures) for task in tasks), return_exceptions=True
                )
                figures.errors += [repr(one) for one in done if isinstance(one, BaseException)]
                used.append(memory(pid))
                print(f"round {turn + 1}: {used[-1]:.0f} MB, {len(figures.errors)} errors")

    begin = time.perf_counter()
    with server() as (address, pid):
        asyncio.run(rounds(address, pid))
    growth = used[-1] / used[1] - 1
    if growth > MAX_GROWTH:
        figures.errors.append(f"the memory grew by {growth:.1%}")
    found = {
        "clients": len(tasks),
        "rounds": NUM_ROUNDS,
        "requests": sum(map(len, figures.seconds.values())),
        "seconds": round(time.perf_counter() - begin),
        "errors": figures.errors,
        "max_difference": figures.max_difference,
        "memory_mb": [round(value) for value in used],
        "answers": {name: summary(own) for name, own in sorted(figures.seconds.items())},
    }
    save("clients", found)
    sys.exit(1 if figures.errors else 0)


def report() -> None:
    """Write the tables of the page."""
    results = json.loads(RESULTS.read_text())
    rows = [
        [name, f"{own['count']}", *(f"{own[key]:,.0f}" for key in KEYS)]
        for name, own in results["times"].items()
        if isinstance(own, dict)
    ]
    lines = ["### Times in milliseconds", "", *table(["action", "number", *HEADS], rows)]
    lines += [f"The export as ONNX took {results['times']['onnx_s']:.0f} s.", ""]
    own = results["clients"]
    used = ", ".join(f"{value:,} MB" for value in own["memory_mb"][1:])
    lines += [
        "### Simultaneous clients",
        "",
        f"{own['clients']} clients ran the workflow {own['rounds']} times, with "
        f"{own['requests']:,} requests in {own['seconds']:,} s. There were "
        f"{len(own['errors'])} errors, and the probabilities differ from a classifier that is "
        f"fitted to the same photos by at most {own['max_difference']:.1g}. The server used "
        f"{own['memory_mb'][0]:,} MB before the first round, and after the rounds {used}. Times "
        "in milliseconds include the wait for other clients:",
        "",
    ]
    rows = [
        [name, f"{each['count']:,}", *(f"{each[key]:,.0f}" for key in KEYS)]
        for name, each in own["answers"].items()
    ]
    lines += table(["request", "number", *HEADS], rows)
    own = results["bombs"]
    lines += [
        "### Image bombs",
        "",
        f"Ten clients sent a PNG of 8000 x 8000 pixels ({own['file_kb']} kB) at the same time. The "
        f"server decoded {own['added']} of them, and its memory rose from {own['before_mb']:,.0f} "
        f"MB to at most {own['peak_mb']:,.0f} MB.",
    ]
    loads = ", ".join(f"{own['load']:g} ({name})" for name, own in results.items())
    lines += ["", f"Load of the machine with {own['cores']} cores: {loads}.", ""]
    write_part(PAGE, "serve.py", lines)


KEYS, HEADS = ("min_ms", "median_ms", "max_ms"), ("minimum", "median", "maximum")

if __name__ == "__main__":
    choose(__doc__, times, clients, bombs, report)
