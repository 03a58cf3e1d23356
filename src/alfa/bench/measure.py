"""Compare two engines in two processes that take turns."""

import contextlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from alfa.bench.worker import Worker
from alfa.bench.workloads import WORKLOADS

# The minimum duration of a round, which keeps the noise of small workloads low.
_ROUND_SECONDS = 2.0

# The engine of each rival, and whether its process reuses the memory of large tensors.
RIVALS = {
    "plain": ("plain", False),
    "higher": ("higher", False),
    "plain_kept": ("plain", True),
    "higher_kept": ("higher", True),
    "limit": ("limit", True),
}


@dataclass(frozen=True)
class Comparison:
    """The best rounds of alfa and a rival on one workload, in seconds per iteration."""

    workload: str
    rival: str
    seconds: float
    peak: int | None  # memory of the process in bytes; None if the system does not report it
    rival_seconds: float
    rival_peak: int | None
    rounds: int  # of each engine

    @property
    def ratio(self) -> float:
        """The time of the rival divided by the time of alfa."""
        return self.rival_seconds / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def rivals_of(workload: str) -> list[str]:
    """Return the rivals that can run a workload on this machine."""
    # An MLP has no convolutions for `limit`, and no large tensors whose memory could be reused.
    names = ["plain", "higher"] if WORKLOADS[workload].size is None else list(RIVALS)
    # `WithHigher` only trains, so evaluation is compared with plain torch.
    if importlib.util.find_spec("higher") is None or not WORKLOADS[workload].train:
        names = [name for name in names if RIVALS[name][0] != "higher"]
    return names


def compare(
    workload: str, rival: str, *, rounds: int, on_round: Callable[[], None] = lambda: None
) -> Comparison:
    """Measure a workload with alfa and a rival in several rounds each.

    `on_round` is called after each round. Raises WorkerError if one of the processes ends early.
    """
    workers: list[tuple[Worker, int]] = []  # with their iterations per round
    best = [math.inf, math.inf]
    peaks: list[int | None] = [None, None]
    with contextlib.ExitStack() as stack:
        # The second process starts while the first is idle, so they do not slow each other down.
        for engine, keep_memory in (("alfa", True), RIVALS[rival]):
            worker = Worker(workload, engine, keep_memory=keep_memory)
            stack.callback(worker.close)
            worker.run(1)  # compiles and allocates
            workers.append((worker, math.ceil(_ROUND_SECONDS / worker.run(1)["seconds"])))
        for _ in range(rounds):
            for number, (worker, count) in enumerate(workers):
                answer = worker.run(count)
                best[number] = min(best[number], answer["seconds"])
                peaks[number] = answer["peak"]
                on_round()
    return Comparison(workload, rival, best[0], peaks[0], best[1], peaks[1], rounds)
