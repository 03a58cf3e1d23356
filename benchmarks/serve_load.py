"""Load test of `alfa serve` with the requests of many browsers.

    python benchmarks/serve_load.py RUN [--clients 50] [--rounds 5] [--out FILE]

Starts the web page on a free local port. In each round, all clients open the page at the same time,
add images of different classes as files and as drawings, learn, classify new images, and leave.
Each response must contain the client's classes, with the probabilities of a FewShotClassifier that
is fitted here to the same images. After the first round, the server's memory must not grow by more
than 5 %. The exit code is 1 if a check fails. Results go to docs/results/serve-load.json.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import platform
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from _common import command
from PIL import Image

import alfa
from alfa import FewShotClassifier
from alfa._io import write_atomic
from alfa._runtime import usable_cpus
from alfa.data import Strokes
from alfa.serve import Model

OUT = Path(__file__).parent.parent / "docs" / "results" / "serve-load.json"
SHOT, TRIED, SIDE = 4, 3, 64
# Time limit of a round in seconds.
PATIENCE = 600.0
# Maximum growth of the server's memory between the first and the last round.
MAX_GROWTH = 0.05
TOLERANCE = 1e-6
_ODD = re.compile(
    r'<div class="alfa-odd[^"]*"[^>]*data-probability="([^"]+)">'
    r'<span class="alfa-odd-name" title="([^"]*)">'
)


@dataclass(frozen=True)
class Task:
    """The images of a client, and the probabilities that it must receive."""

    names: list[str]
    files: list[list[bytes]]
    strokes: list[list[list[list[float]]]]
    tried: list[bytes]
    expected: np.ndarray


@dataclass
class Figures:
    """Response times in seconds, and errors."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    max_difference: float = 0.0
    num_requests: int = 0


def make_task(number: int, model: Model) -> Task:
    """Create a task of two to five generated characters that no other client has."""
    way = 2 + number % 4
    drawn = Strokes(num_classes=way, num_examples=SHOT + TRIED, size=SIDE, seed=1000 + number)
    images = drawn.images().images.reshape(way, SHOT + TRIED, SIDE, SIDE)
    rng = np.random.default_rng(number)
    strokes = [[rng.uniform(0, 1, (4, 2)).round(3).tolist()] for _ in range(way)]
    support = [[_png(image) for image in each[:SHOT]] for each in images]
    tried = [_png(images[place % way, SHOT + place]) for place in range(TRIED)]
    classifier = FewShotClassifier(model.run)
    pixels = [
        [*(model.read(file)[0] for file in files), model.drawn(drawing)[0]]
        for files, drawing in zip(support, strokes, strict=True)
    ]
    classifier.fit(
        [image for each in pixels for image in each], np.repeat(np.arange(way), SHOT + 1)
    )
    expected = classifier.predict_proba([model.read(file)[0] for file in tried])
    names = [f"client {number} class {place}" for place in range(way)]
    return Task(names, support, strokes, tried, expected)


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


class Client:
    """A client that sends the requests of a browser."""

    def __init__(self, web: httpx.AsyncClient, figures: Figures, *, number: int) -> None:
        self._web, self._figures = web, figures
        self._session = f"client{number}x{random.getrandbits(48):x}"
        self._events: dict[str, int] = {}

    @asynccontextmanager
    async def visiting(self) -> AsyncIterator[None]:
        """Keep the page open: load its parts and hold the heartbeat request."""
        for path in ("/", "/config"):
            answer = await self._web.get(path)
            answer.raise_for_status()
            self._figures.num_requests += 1
        self._events = {each["api_name"]: each["id"] for each in answer.json()["dependencies"]}
        async with self._web.stream("GET", f"/gradio_api/heartbeat/{self._session}") as held:
            # A reference keeps the stream open.
            lines = held.aiter_lines()
            await anext(lines)
            yield
            await lines.aclose()

    async def send(self, files: Sequence[bytes]) -> list[str]:
        """Upload files and return their tokens."""
        tokens = []
        for place, content in enumerate(files):
            address = f"/alfa/files?kind=picture&name={place}.png&who={self._session}"
            answer = await self._web.post(address, content=content)
            answer.raise_for_status()
            self._figures.num_requests += 1
            tokens.append(answer.json()["token"])
        return tokens

    async def act(self, event: str, data: dict[str, Any] | None = None) -> list[Any]:
        """Send an event and return the updated parts of the page."""
        begin = time.perf_counter()
        body = {
            "session_hash": self._session,
            "fn_index": self._events[event],
            "data": [],
            "event_data": data,
        }
        joined = await self._web.post("/gradio_api/queue/join", json=body)
        joined.raise_for_status()
        wanted = joined.json()["event_id"]
        self._figures.num_requests += 2
        address = f"/gradio_api/queue/data?session_hash={self._session}"
        async with self._web.stream("GET", address) as stream:
            async for line in stream.aiter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                is_end = message["msg"] == "process_completed"
                if is_end and message["event_id"] == wanted:
                    if not message["success"]:
                        raise RuntimeError(f"{event}: {message['output']}")
                    seconds = time.perf_counter() - begin
                    kind = event.split("_")[0]
                    self._figures.seconds.setdefault(kind, []).append(seconds)
                    return list(message["output"]["data"])
        raise RuntimeError(f"{event}: the server ended the response")


async def round_of(client: Client, task: Task, figures: Figures) -> None:
    """Run all actions of a client, from opening the page to closing it."""
    async with client.visiting():
        numbers: list[int] = []
        for _ in task.names[2:]:
            await client.act("teach", {"do": "add"})
        shown = await client.act("teach", {"do": "none"})
        numbers = [int(found) for found in re.findall(r'data-class="(\d+)"', shown[1])]
        for number, name, files, strokes in zip(
            numbers, task.names, task.files, task.strokes, strict=True
        ):
            await client.act("teach", {"do": "rename", "class": number, "name": name})
            await client.act("teach", {"do": "pick", "class": number})
            await client.act("teach", {"do": "files", "files": await client.send(files)})
            shown = await client.act("teach", {"do": "draw", "strokes": strokes})
        names = [
            unescape(found) for found in re.findall(r'class="alfa-name" value="(.*?)"', shown[1])
        ]
        if names != task.names:
            figures.errors.append(f"the classes are {names}, expected {task.names}")
        await client.act("learn")
        for place, file in enumerate(task.tried):
            shown = await client.act("try_1", {"do": "files", "files": await client.send([file])})
            odds = {unescape(name): float(found) for found, name in _ODD.findall(shown[1])}
            if sorted(odds) != sorted(task.names):
                figures.errors.append(f"the response has {sorted(odds)}, expected {task.names}")
                continue
            found = np.array([odds[name] for name in task.names])
            difference = float(np.abs(found - task.expected[place]).max())
            figures.max_difference = max(figures.max_difference, difference)
            if difference > TOLERANCE:
                figures.errors.append(f"{task.names[0]}: probabilities differ by {difference:.2g}")


async def load(address: str, tasks: Sequence[Task], *, rounds: int, pid: int) -> dict[str, Any]:
    """Run all clients simultaneously, several times."""
    memory, figures = [_resident(pid)], Figures()
    limits = httpx.Limits(max_connections=None)
    begin = time.perf_counter()
    async with httpx.AsyncClient(
        base_url=address, limits=limits, timeout=PATIENCE, trust_env=False
    ) as web:
        for turn in range(rounds):
            # The times of the first round, a warm-up, do not count.
            figures = Figures(errors=figures.errors) if turn == 1 else figures
            clients = [Client(web, figures, number=number) for number in range(len(tasks))]
            each = [
                round_of(client, task, figures) for client, task in zip(clients, tasks, strict=True)
            ]
            found = await asyncio.wait_for(
                asyncio.gather(*each, return_exceptions=True), timeout=PATIENCE
            )
            figures.errors += [repr(one) for one in found if isinstance(one, BaseException)]
            # The server notices closed pages with a delay.
            await asyncio.sleep(1)
            memory.append(_resident(pid))
            print(
                f"round {turn + 1} of {rounds}: {memory[-1]:.0f} MB, {len(figures.errors)} errors"
            )
    seconds = time.perf_counter() - begin
    return _summary(figures, memory, seconds)


def _summary(figures: Figures, memory: list[float], seconds: float) -> dict[str, Any]:
    growth = memory[-1] / memory[1] - 1
    errors = [*figures.errors]
    if growth > MAX_GROWTH:
        errors.append(f"memory grew by {growth:.1%}")
    return {
        "errors": errors,
        "max_difference": figures.max_difference,
        "requests": figures.num_requests,
        "seconds": round(seconds, 1),
        "answers": {
            name: {
                "count": len(values),
                "median_ms": round(1000 * float(np.median(values)), 1),
                "p95_ms": round(1000 * float(np.quantile(values, 0.95)), 1),
                "max_ms": round(1000 * max(values), 1),
            }
            for name, values in sorted(figures.seconds.items())
        },
        "memory_mb": {
            "before": round(memory[0], 1),
            "after_each_round": [round(value, 1) for value in memory[1:]],
            "growth": round(growth, 4),
        },
    }


def _resident(pid: int) -> float:
    """Return the memory of a process in megabytes, or NaN if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return float("nan")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2, because the first round is a warm-up")
    torch.set_num_threads(1)
    model = Model.open(options.run)
    tasks = [make_task(number, model) for number in range(options.clients)]
    words = command("serve", str(options.run), "--port", "0", "--threads", "1")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.findall(r"http://\S+", server.stdout.readline())[0]
            summary = asyncio.run(load(address, tasks, rounds=options.rounds, pid=server.pid))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)
    content = {
        "alfa": alfa.__version__,
        "machine": {"cores": usable_cpus(), "system": platform.platform()},
        "run": options.run.name,
        "clients": options.clients,
        "rounds": options.rounds,
        **summary,
    }
    text = json.dumps(content, indent=2)
    print(text)
    write_atomic(options.out, f"{text}\n".encode())
    sys.exit(1 if summary["errors"] else 0)


if __name__ == "__main__":
    main()
