"""A process that runs one piece of work whenever it is told to.

Every line on its standard input is a number of iterations; it answers with a line of JSON that has
the seconds each took, the loss, and the peak memory of the process in bytes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import Any


def serve(work: str, engine: str) -> None:
    """Answer until the input ends."""
    from alfa.bench.works import WORKS
    from alfa.ops import set_threads

    if engine in ("alfa", "limit"):
        set_threads(small=WORKS[work].size is None)
    iteration = WORKS[work].iteration(engine)  # type: ignore[arg-type]
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            loss = iteration()
        seconds = (time.perf_counter() - began) / int(line)
        print(json.dumps({"seconds": seconds, "loss": loss, "peak": _peak()}), flush=True)


def _peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Worker:
    """Such a process, and the way to it.

    Args:
        work: the name of the work.
        engine: ``"alfa"``, ``"plain"``, ``"higher"`` or ``"limit"``.
        keep_memory: whether the process keeps the memory of large tensors.
    """

    def __init__(self, work: str, engine: str, *, keep_memory: bool) -> None:
        code = f"from alfa.bench.worker import serve; serve({work!r}, {engine!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ALFA_KEEP_MEMORY": "1" if keep_memory else "0"},
        )

    def run(self, iterations: int) -> dict[str, Any]:
        """Run that many iterations, and wait for them."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{iterations}\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError("a worker ended before its time; its message is above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
