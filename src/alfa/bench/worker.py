"""A process that runs one workload on request.

Each line of its standard input is a number of iterations. The process answers with a line of JSON:
the seconds per iteration, the loss, and the peak memory of the process in bytes, or null if the
system does not report it.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

from alfa.errors import AlfaError


class WorkerError(AlfaError):
    """A worker process ended early."""


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
        import resource  # not available on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Worker:
    """A connection to a new worker process; `keep_memory` reuses the memory of large tensors."""

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
        """Run iterations; raise WorkerError if the process has ended."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            print(iterations, file=self._process.stdin, flush=True)
            line = stdout.readline()
        except OSError:
            # Propagated, the CLI would take the broken pipe for a closed pager.
            line = ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self._process.wait()
        cause = "probably out of memory" if code == -9 else "see its error message above, if any"
        raise WorkerError(
            f"the worker for workload {self._workload!r} with engine {self._engine!r} ended early "
            f"with exit code {code}, {cause}."
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
