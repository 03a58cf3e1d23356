"""A process that runs one workload on request.

Every line of its standard input is a number of iterations. It answers with a line of JSON: the
seconds per iteration, the loss, and the peak memory of the process in bytes, or null if the system
does not report it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from alfa.errors import AlfaError


class WorkerError(AlfaError):
    """A measuring process has ended too early."""


def run_worker(workload: str, engine: str) -> None:
    """Answer requests until the input ends."""
    from alfa._runtime import set_threads, tune
    from alfa.bench.workloads import WORKLOADS

    tune()
    if engine in ("alfa", "limit"):
        set_threads(small=WORKLOADS[workload].size is None)
    iteration = WORKLOADS[workload].iteration(engine)  # type: ignore[arg-type]
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
    """A connection to a new measuring process.

    Args:
        workload: the name of the workload.
        engine: ``"alfa"``, ``"plain"``, ``"higher"`` or ``"limit"``.
        keep_memory: whether the process keeps the memory of large tensors.
    """

    def __init__(self, workload: str, engine: str, *, keep_memory: bool) -> None:
        self._workload, self._engine = workload, engine
        code = f"from alfa.bench.worker import run_worker; run_worker({workload!r}, {engine!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ALFA_KEEP_MEMORY": "1" if keep_memory else "0"},
        )

    def run(self, iterations: int) -> dict[str, Any]:
        """Run so many iterations.

        Raises:
            WorkerError: the process has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(f"{iterations}\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            # The command line would take a broken pipe for a closed pager.
            line = ""
        if not line:
            raise self._error()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _error(self) -> WorkerError:
        code = self._process.wait()
        out_of_memory = "which usually means that the memory ran out"
        likely = out_of_memory if code == -9 else "and its own message, if any, is above"
        return WorkerError(
            f"the process that measures {self._workload!r} with {self._engine!r} ended too early "
            f"with exit code {code}, {likely}."
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
