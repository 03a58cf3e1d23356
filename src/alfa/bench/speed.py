"""How fast an experiment is on this machine, from a few iterations on random data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from alfa.build import build_learner, build_tasks
from alfa.config import Experiment
from alfa.data import FewShot, ImageSet, Tasks
from alfa.inner import GB, Learner, plan_memory
from alfa.train.evaluate import stack_size, without_dropout
from alfa.train.peak import PeakMemory

# An iteration that takes longer is not measured itself, but from smaller ones.
_LONG = 6.0
# A run meets the machine's bad moments as well as its good ones: at least so many rounds, for at
# least so many seconds.
_ROUNDS, _WHILE = 3, 1.5
# Bytes of a process in which next to nothing happens; see docs/results/estimate.md.
_PROGRAM = 300_000_000
# Of smaller tasks, support and query images of a class.
_SMALL = ((1, 1), (2, 1), (1, 3))


@dataclass(frozen=True)
class Speed:
    """What an experiment costs.

    Attributes:
        iteration: seconds of an outer iteration; 0 where there is nothing to train.
        task: seconds of adapting to a task of a validation or test.
        memory: bytes that the process needs for an iteration or a test, the program itself
            among them.
    """

    iteration: float
    task: float
    memory: int


def measure_speed(experiment: Experiment, *, device: torch.device | str = "cpu") -> Speed:
    """Measure an experiment, without its data.

    Args:
        experiment: whose outer iterations and tests are timed.
        device: where to compute.
    """
    tasks = _tasks(experiment)
    learner = build_learner(experiment, tasks).to(device)
    outer, engine = experiment.outer, experiment.engine
    task, test_memory = _cost_of_task(learner, tasks, device)
    parameters = list(learner.meta_parameters())
    if not parameters:
        return Speed(0.0, task, _PROGRAM + test_memory)
    episode = tasks.episode(0, num_tasks=outer.num_tasks).to(device)
    plan = plan_memory(
        learner,
        episode,
        memory=engine.memory,
        tasks_at_once=engine.tasks_at_once,
        budget=None if engine.memory_budget is None else int(engine.memory_budget * GB),
    )
    learner.memory = plan.mode
    # As small a rate as this leaves the learner as it is.
    optimizer = torch.optim.Adam(parameters, lr=1e-12, fused=True)

    def iterate(tasks: Tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=outer.num_tasks).to(device)
        optimizer.zero_grad()
        for first in range(0, outer.num_tasks, plan.tasks_at_once):
            outcome = learner(episode[first : first + plan.tasks_at_once])
            outcome.query_losses.mean().backward()
        optimizer.step()
        _wait(device)
        return time.perf_counter() - began

    memory = _PROGRAM + max(plan.needed or 0, test_memory)
    return Speed(_extrapolated(experiment, tasks, iterate), task, memory)


def _extrapolated(experiment: Experiment, tasks: Tasks, iterate: Callable[[Tasks], float]) -> float:
    """Seconds of an iteration; a long one's from smaller tasks, as time grows with the images."""
    if not isinstance(tasks, FewShot):
        iterate(tasks)
        return _typical(lambda: iterate(tasks))
    small = [_tasks(experiment, shot=shot, num_query=num_query) for shot, num_query in _SMALL]
    iterate(small[0])
    first = _typical(lambda: iterate(small[0]))
    if first * max(tasks.shot, tasks.num_query / 3) <= _LONG:
        iterate(tasks)
        return _typical(lambda: iterate(tasks))
    second, third = (_typical(lambda t=t: iterate(t)) for t in small[1:])  # type: ignore[misc]
    per_shot, per_query = second - first, (third - first) / 2
    return first + per_shot * (tasks.shot - 1) + per_query * (tasks.num_query - 1)


def _cost_of_task(learner: Learner, tasks: Tasks, device: torch.device | str) -> tuple[float, int]:
    """Seconds for a task of an evaluation, which adapts to several at once, and its memory."""

    def run(num_tasks: int) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_tasks, split="train").to(device)
        with without_dropout(learner.model):
            learner(episode, order="none")
        _wait(device)
        return time.perf_counter() - began

    # The first makes what is made only once.
    run(1)
    with PeakMemory() as peak:
        alone = run(1)
    at_once = stack_size(peak.bytes)
    num_tasks = min(at_once, max(1, int(_LONG / alone)))
    return _typical(lambda: run(num_tasks)) / num_tasks, peak.bytes * at_once


def _typical(work: Callable[[], float]) -> float:
    """The median of rounds for a while, or the first if it is long."""
    times = [work()]
    while times[0] < _LONG and (len(times) < _ROUNDS or sum(times) < _WHILE):
        times.append(work())
    return statistics.median(times)


def _tasks(
    experiment: Experiment, *, shot: int | None = None, num_query: int | None = None
) -> Tasks:
    """The experiment's tasks, on random images where they would be images."""
    options = experiment.tasks.options
    if experiment.tasks.name != "images":
        return build_tasks(experiment)
    shot, num_query = shot or options["shot"], num_query or options["num_query"]
    side = options.get("seen_size") or options["size"]
    rng = np.random.default_rng(0)
    shape = (shot + num_query, 3, side, side)
    classes = {
        f"class {number}": rng.integers(0, 256, shape, np.uint8) for number in range(options["way"])
    }
    images = ImageSet.of_arrays("random", {"train": classes})
    return FewShot(images, way=options["way"], shot=shot, num_query=num_query)


def _wait(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.device(device).type == "mps":
        torch.mps.synchronize()
