"""Compares two engines in two processes that take turns."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from alfa.bench.worker import Worker
from alfa.bench.workloads import WORKLOADS

# The least duration of a round, so that small workloads do not drown in noise.
_ROUND_SECONDS = 2.0


class Rival(NamedTuple):
    """An engine to compare with, and whether it keeps the memory of large tensors."""

    engine: str
    keep_memory: bool = False


RIVALS = {
    "plain": Rival("plain"),
    "higher": Rival("higher"),
    "plain_kept": Rival("plain", keep_memory=True),
    "higher_kept": Rival("higher", keep_memory=True),
    "limit": Rival("limit", keep_memory=True),
}


@dataclass(frozen=True)
class Comparison:
    """The best rounds of two engines on one workload.

    Attributes:
        workload: its name.
        rival: the name of the other engine.
        seconds: of an iteration with alfa.
        peak: bytes of memory of the process with alfa; None if the system does not report it.
        rival_seconds: of an iteration with the other engine.
        rival_peak: bytes of memory of its process.
        rounds: rounds of each engine.
    """

    workload: str
    rival: str
    seconds: float
    peak: int | None
    rival_seconds: float
    rival_peak: int | None
    rounds: int

    @property
    def ratio(self) -> float:
        """The time of the rival divided by alfa's."""
        return self.rival_seconds / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def rivals_of(workload: str) -> list[str]:
    """The rivals that can run a workload on this machine."""
    names = list(RIVALS)
    # An evaluation is compared with plain torch only, which trains.
    if importlib.util.find_spec("higher") is None or not WORKLOADS[workload].train:
        names = [name for name in names if RIVALS[name].engine != "higher"]
    if WORKLOADS[workload].size is None:
        # A perceptron has no convolutions, and its tensors are small.
        names = [name for name in names if name in ("plain", "higher")]
    return names


def compare(
    workload: str, rival: str, *, rounds: int, on_round: Callable[[], None] = lambda: None
) -> Comparison:
    """Measure a workload with alfa and with another engine.

    Args:
        workload: the name of the workload.
        rival: the name of the other engine.
        rounds: rounds of each.
        on_round: called after each round.

    Raises:
        WorkerError: one of the processes has ended too early.
    """
    other = RIVALS[rival]
    workers: list[Worker] = []
    counts: list[int] = []
    best = [math.inf, math.inf]
    peaks: list[int | None] = [None, None]
    try:
        # The second process starts when the first is idle, so that it does not slow that down.
        for engine, keep_memory in (("alfa", True), other):
            workers.append(Worker(workload, engine, keep_memory=keep_memory))
            counts.append(_iterations_of_a_round(workers[-1]))
        for _ in range(rounds):
            for number, worker in enumerate(workers):
                answer = worker.run(counts[number])
                best[number] = min(best[number], answer["seconds"])
                peaks[number] = answer["peak"]
                on_round()
    finally:
        for worker in workers:
            worker.close()
    return Comparison(workload, rival, best[0], peaks[0], best[1], peaks[1], rounds)


def _iterations_of_a_round(worker: Worker) -> int:
    worker.run(1)  # compiles and allocates
    seconds: float = worker.run(1)["seconds"]
    return math.ceil(_ROUND_SECONDS / seconds)
