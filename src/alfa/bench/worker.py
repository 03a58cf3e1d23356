"""A process that runs one piece of work whenever it is told to.

Every line on its standard input is a number of iterations; it answers with a line of JSON that has
the seconds each took, the loss, and the peak memory of the process in bytes, or null where the
system does not tell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import IO, Any

from alfa.errors import AlfaError


class WorkerError(AlfaError):
    """A process that measures has ended before its time."""


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


def _peak() -> int | None:
    try:
        import resource  # which Windows does not have
    except ImportError:
        return None
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
        self._work, self._engine = work, engine
        code = f"from alfa.bench.worker import serve; serve({work!r}, {engine!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ALFA_KEEP_MEMORY": "1" if keep_memory else "0"},
        )

    def run(self, iterations: int) -> dict[str, Any]:
        """Run that many iterations, and wait for them.

        Raises:
            WorkerError: the process has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = _ask(stdin, stdout, f"{iterations}\n")
        if not line:
            raise self._error()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _error(self) -> WorkerError:
        code = self._process.wait()
        out_of_memory = "which usually means that the memory ran out"
        likely = out_of_memory if code == -9 else "and its own message, if any, is above"
        return WorkerError(
            f"the process that measures {self._work!r} with {self._engine!r} ended before its time "
            f"with exit code {code}, {likely}."
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _ask(stdin: IO[str], stdout: IO[str], question: str) -> str:
    """The answer, empty where nobody is left to give one."""
    try:
        stdin.write(question)
        stdin.flush()
    except OSError:
        # A broken pipe here is no closed pager, which is what the command line would take it for.
        return ""
    return stdout.readline()
