"""Side by side: two processes that take turns, never at once."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from alfa.bench.worker import Worker
from alfa.bench.works import WORKS

# A round lasts at least this long, so that small works do not drown in noise.
_ROUND_SECONDS = 2.0


@dataclass(frozen=True)
class Rival:
    """What a work is measured against.

    Attributes:
        engine: of the other process.
        keep_memory: whether it keeps the memory of large tensors, which it does not by default.
    """

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
    """Two engines on one work, the best round of each.

    Attributes:
        work: its name.
        rival: the other engine.
        seconds: an iteration took with alfa.
        peak: bytes of memory that the process with alfa reached; None where the system does not
            tell.
        rival_seconds: an iteration took with the other.
        rival_peak: bytes that its process reached.
        rounds: of each, taking turns.
    """

    work: str
    rival: str
    seconds: float
    peak: int | None
    rival_seconds: float
    rival_peak: int | None
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times alfa's time the other one takes."""
        return self.rival_seconds / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def rivals_of(work: str) -> list[str]:
    """What there is to measure a work against on this machine."""
    names = list(RIVALS)
    if importlib.util.find_spec("higher") is None:
        names = [name for name in names if RIVALS[name].engine != "higher"]
    if WORKS[work].size is None:
        # A perceptron has no convolutions, and its tensors are small.
        names = [name for name in names if name in ("plain", "higher")]
    if not WORKS[work].train:
        # An evaluation is measured against plain with graph and backward only.
        names = [name for name in names if RIVALS[name].engine != "higher"]
    return names


def compare(
    work: str, rival: str, *, rounds: int, on_round: Callable[[], None] = lambda: None
) -> Comparison:
    """Measure a work with alfa and with another engine.

    Args:
        work: its name.
        rival: the name of the other.
        rounds: how many turns each takes.
        on_round: called after each of them.

    Raises:
        WorkerError: one of the processes has ended before its time.
    """
    other = RIVALS[rival]
    workers: list[Worker] = []
    counts: list[int] = []
    best = [math.inf, math.inf]
    peaks: list[int | None] = [None, None]
    try:
        # The second starts when the first is idle, or its start would be in the first one's times.
        for engine, keep_memory in (("alfa", True), (other.engine, other.keep_memory)):
            workers.append(Worker(work, engine, keep_memory=keep_memory))
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
    return Comparison(work, rival, best[0], peaks[0], best[1], peaks[1], rounds)


def _iterations_of_a_round(worker: Worker) -> int:
    worker.run(1)  # compiles and allocates
    seconds: float = worker.run(1)["seconds"]
    return math.ceil(_ROUND_SECONDS / seconds)
