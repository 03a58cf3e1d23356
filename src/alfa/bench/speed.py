"""The speed of a learner on this machine, measured on random images."""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import nn

from alfa.data import FewShot, ImageSet, Tasks
from alfa.errors import DivergedError
from alfa.evaluation import MemoryProbe, check_finite, stack_size, without_dropout
from alfa.learner import GB, Learner, plan_memory
from alfa.objectives import Objective, QueryLoss
from alfa.training import clip_gradient, trained_parameters

# Work longer than this many seconds is timed once.
_LONG = 6.0
# Iterations longer than this many seconds are extrapolated from smaller ones.
_LONGEST = 300.0
# Minimum number of rounds, and of seconds, for a median.
_ROUNDS, _SECONDS = 3, 1.5
# Bytes of a process that trains small MLPs, whose tensors are negligible; see
# docs/results/estimate.md.
_PROGRAM = 400_000_000
# The batch size of measurements for pretraining.
_BATCH = 8
# Support and query images per class of the small tasks for extrapolating time.
_SMALL = ((1, 1), (2, 1), (1, 3))
# Support images per class, and as many queries, of the small tasks for extrapolating memory.
_FEW = (1, 3)
# If tasks vary in size: the classes of small tasks, and the maximum factor on `_SMALL`.
_SMALL_WAY, _MAX_FACTOR = 5, 16


@dataclass(frozen=True)
class Speed:
    """The cost of training and testing a learner."""

    iteration: float  # seconds of an outer iteration; 0 if there is nothing to train
    task: float  # seconds of adapting to one task in a validation or test
    memory: int  # bytes of the process, including the program
    mode: str = ""  # memory mode of an outer iteration; empty if there is none


@dataclass(frozen=True)
class TaskSizes:
    """Numbers of images in tasks that vary in size."""

    support: float  # mean number of support images
    query: float  # mean number of query images
    largest: int  # images of the largest task


def random_images(
    size: int, *, way: int = _SMALL_WAY, shot: int = 1, num_query: int = 1
) -> FewShot:
    """Return tasks of random images with three channels."""
    rng = np.random.default_rng(0)
    shape = (shot + num_query, 3, size, size)
    classes = {f"class {number}": rng.integers(0, 256, shape, np.uint8) for number in range(way)}
    images = ImageSet.of_arrays("random", {"train": classes})
    return FewShot(images, way=way, shot=shot, num_query=num_query)


def measure_speed(
    learner: Learner,
    tasks: Tasks,
    *,
    num_tasks: int,
    test_tasks: Tasks | None = None,
    objective: Objective | None = None,
    num_test_steps: int | None = None,
    max_gradient_norm: float | None = None,
    memory: Literal["auto", "store", "recompute"] = "auto",
    tasks_at_once: int | None = None,
    memory_budget: float | None = None,
    sizes: TaskSizes | None = None,
    device: torch.device | str = "cpu",
) -> Speed:
    """Measure outer iterations and evaluations, with options as for `alfa.Trainer`.

    The tasks are usually `random_images`; `test_tasks` are those of evaluations, if they differ.
    If the real tasks vary in size, `sizes` describes them, and `tasks` are small ones.
    """
    learner = learner.to(device)
    task, test_memory = _cost_of_task(learner, test_tasks or tasks, num_test_steps, sizes, device)
    objective = (QueryLoss() if objective is None else objective).to(device, learner.dtype)
    parameters = trained_parameters(learner, objective)
    if not parameters:
        return Speed(0.0, task, _PROGRAM + test_memory)
    plan = plan_memory(
        learner,
        tasks.episode(0, num_tasks=num_tasks).to(device, learner.dtype),
        memory=memory,
        tasks_at_once=tasks_at_once,
        budget=None if memory_budget is None else int(memory_budget * GB),
        runs=[partial(objective, progress=0.0)],
    )
    learner.memory = plan.mode
    # The learning rate is too small to change the learner.
    optimizer = torch.optim.Adam(parameters, lr=1e-12, fused=True)
    # If tasks are computed one at a time, one is timed.
    num_timed = 1 if plan.tasks_at_once == 1 else num_tasks

    def iterate(tasks: Tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_timed).to(device, learner.dtype)
        optimizer.zero_grad()
        for first in range(0, num_timed, plan.tasks_at_once):
            outcome = objective(learner, episode[first : first + plan.tasks_at_once], progress=0.0)
            losses = outcome.adapted.support_losses, outcome.query_losses
            # A loss on random images may diverge.
            with contextlib.suppress(DivergedError):
                check_finite(*losses, rule="", where="")
            outcome.losses.mean().backward()
        adapted = _finished(device)
        # Training checks take noticeable time with small models.
        clip_gradient(parameters, max_gradient_norm)
        optimizer.step()
        return (adapted - began) * num_tasks / num_timed + _finished(device) - adapted

    needed = (plan.needed or 0) if sizes is None else _largest_memory(tasks, sizes, iterate)
    seconds = _extrapolated(tasks, sizes, iterate)
    return Speed(seconds, task, _PROGRAM + max(needed, test_memory), plan.mode)


def pretraining_seconds(
    model: nn.Module, size: int, *, num_images: int, device: torch.device | str = "cpu"
) -> float:
    """Return the time to train a classifier on `num_images`, extrapolated from a small batch."""
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-12, fused=True)
    x = torch.zeros(_BATCH, 3, size, size, device=device)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return _finished(device) - began

    step()
    return num_images * _typical(step) / _BATCH


def _extrapolated(tasks: Tasks, sizes: TaskSizes | None, timed: Callable[[Tasks], float]) -> float:
    """Time work in seconds; extrapolate very long work linearly from smaller tasks."""
    if not isinstance(tasks, FewShot):
        timed(tasks)
        return _typical(lambda: timed(tasks))
    timed(_smaller(tasks, way=1))  # compiles and allocates
    times = 1
    while True:
        small = [_smaller(tasks, shot=times * s, num_query=times * q) for s, q in _SMALL]
        first = _typical(partial(timed, small[0]))
        # Differences between small tasks must exceed the noise.
        if sizes is None or first > _LONG / 20 or times >= _MAX_FACTOR:
            break
        times *= 4
    if sizes is None and first * max(tasks.shot, tasks.num_query / 3) <= _LONGEST:
        return _typical(lambda: timed(tasks))
    second, third = (_typical(partial(timed, some)) for some in small[1:])
    per_shot, per_query = max(second - first, 0) / times, max(third - first, 0) / (2 * times)
    shot, num_query = float(tasks.shot), float(tasks.num_query)
    if sizes is not None:
        shot, num_query = sizes.support / tasks.way, sizes.query / tasks.way
    return first + per_shot * (shot - times) + per_query * (num_query - times)


def _cost_of_task(
    learner: Learner,
    tasks: Tasks,
    num_steps: int | None,
    sizes: TaskSizes | None,
    device: torch.device | str,
) -> tuple[float, int]:
    """Return the seconds per task of an evaluation, and its bytes for all tasks at once."""

    def run(num_tasks: int, tasks: Tasks = tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_tasks, split="train").to(device, learner.dtype)
        with without_dropout(learner.model):
            learner(episode, num_steps=num_steps, order="none")
        return _finished(device) - began

    # The first call compiles and allocates.
    run(1, _smaller(tasks, way=1) if isinstance(tasks, FewShot) else tasks)
    with MemoryProbe() as peak:
        alone = run(1)
    if sizes is not None:
        # Evaluation adapts to tasks of different sizes one at a time.
        seconds = _extrapolated(tasks, sizes, partial(run, 1))
        return seconds, _largest_memory(tasks, sizes, partial(run, 1))
    at_once = stack_size(peak.bytes)
    num_tasks = min(at_once, max(1, int(_LONG / alone)))
    seconds = alone if alone >= _LONG else _typical(lambda: run(num_tasks)) / num_tasks
    return seconds, peak.bytes * at_once


def _largest_memory(tasks: Tasks, sizes: TaskSizes, work: Callable[[Tasks], object]) -> int:
    """Extrapolate the bytes of the largest tasks, linearly in the number of images."""
    found = []
    for number in _FEW:
        small = _smaller(tasks, shot=number, num_query=number)
        with MemoryProbe() as peak:
            work(small)
        found.append((2 * number * _SMALL_WAY, peak.bytes))
    (few, least), (many, more) = found
    return int(least + max(more - least, 0) / (many - few) * (sizes.largest - few))


def _smaller(tasks: Tasks, *, way: int | None = None, shot: int = 1, num_query: int = 1) -> FewShot:
    """Return tasks with fewer images of the same size."""
    assert isinstance(tasks, FewShot)
    size = tasks.input_shape[-1]
    return random_images(size, way=way or tasks.way, shot=shot, num_query=num_query)


def _typical(work: Callable[[], float]) -> float:
    """Return the median duration of some rounds, or of the first if it is long."""
    times = [work()]
    while times[0] < _LONG and (len(times) < _ROUNDS or sum(times) < _SECONDS):
        times.append(work())
    return statistics.median(times)


def _finished(device: torch.device | str) -> float:
    """Wait until a device has finished its work, and return the time in seconds."""
    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()
    return time.perf_counter()
