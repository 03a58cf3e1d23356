"""The speed of a learner on this machine, from a few iterations on random images."""

from __future__ import annotations

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
from alfa.training import clip_gradient

# Seconds above which work is timed once, and above which an iteration is extrapolated from smaller
# ones, which multiplies their errors.
_LONG, _LONGEST = 6.0, 300.0
# The median is over at least so many rounds and seconds, to even out the load of the machine.
_ROUNDS, _SECONDS = 3, 1.5
# Bytes of a process that trains perceptrons, whose tensors are small; see docs/results/estimate.md.
_PROGRAM = 400_000_000
# The batch from which larger ones are extrapolated.
_BATCH = 8
# Support and query images per class of small tasks from which larger ones are extrapolated.
_SMALL = ((1, 1), (2, 1), (1, 3))
# Images per class, for support and query each, of tasks that tell the memory of an image.
_FEW = (1, 3)
# For tasks that vary in size: the classes of small tasks, and the most times `_SMALL` is enlarged.
_SMALL_WAY, _MOST_TIMES = 5, 16


@dataclass(frozen=True)
class Speed:
    """The cost of training and testing a learner.

    Attributes:
        iteration: seconds of an outer iteration; 0 if there is nothing to train.
        task: seconds of adapting to one task of a validation or test.
        memory: bytes that the process needs, including the program.
        mode: how an iteration stores what its outer gradient needs; empty if there is none.
    """

    iteration: float
    task: float
    memory: int
    mode: str = ""


@dataclass(frozen=True)
class TaskSizes:
    """The sizes of tasks that vary.

    Attributes:
        support: support images of a task on average.
        query: query images of a task on average.
        largest: images of the largest task.
    """

    support: float
    query: float
    largest: int


def random_images(
    size: int, *, way: int = _SMALL_WAY, shot: int = 1, num_query: int = 1
) -> FewShot:
    """Tasks of random images with three channels."""
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
    num_test_steps: int | None = None,
    max_gradient_norm: float | None = None,
    memory: Literal["auto", "store", "recompute"] = "auto",
    tasks_at_once: int | None = None,
    memory_budget: float | None = None,
    sizes: TaskSizes | None = None,
    device: torch.device | str = "cpu",
) -> Speed:
    """Measure outer iterations and evaluations.

    Args:
        learner: the learner.
        tasks: the tasks, usually `random_images`; images of another size are extrapolated.
        num_tasks: tasks of an outer iteration.
        num_test_steps: inner steps in validation and test; by default as in training.
        max_gradient_norm: as for `alfa.Trainer`.
        memory: as for `alfa.Trainer`.
        tasks_at_once: as for `alfa.Trainer`.
        memory_budget: as for `alfa.Trainer`.
        sizes: the sizes of the real tasks, if these vary; `tasks` are then small ones.
        device: where to compute.
    """
    learner = learner.to(device)
    task, test_memory = _cost_of_task(learner, tasks, num_test_steps, sizes, device)
    parameters = list(learner.meta_parameters())
    if not parameters:
        return Speed(0.0, task, _PROGRAM + test_memory)
    plan = plan_memory(
        learner,
        tasks.episode(0, num_tasks=num_tasks).to(device, learner.dtype),
        memory=memory,
        tasks_at_once=tasks_at_once,
        budget=None if memory_budget is None else int(memory_budget * GB),
    )
    learner.memory = plan.mode
    # So small a rate does not change the learner.
    optimizer = torch.optim.Adam(parameters, lr=1e-12, fused=True)
    # If tasks are computed one by one, one of them is timed.
    num_timed = 1 if plan.tasks_at_once == 1 else num_tasks

    def iterate(tasks: Tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_timed).to(device, learner.dtype)
        optimizer.zero_grad()
        for first in range(0, num_timed, plan.tasks_at_once):
            outcome = learner(episode[first : first + plan.tasks_at_once])
            losses = outcome.adapted.support_losses, outcome.query_losses
            # On random images a loss may explode.
            with contextlib.suppress(DivergedError):
                check_finite(*losses, rule="", where="")
            outcome.query_losses.mean().backward()
        _synchronize(device)
        adapted = time.perf_counter()
        # For small models, the checks of a training count, too.
        clip_gradient(parameters, max_gradient_norm)
        optimizer.step()
        _synchronize(device)
        stepped = time.perf_counter()
        return (adapted - began) * num_tasks / num_timed + stepped - adapted

    needed = plan.needed or 0
    if sizes is not None:
        needed = _largest_memory(tasks, sizes, iterate)
    seconds = _extrapolated(tasks, sizes, iterate)
    return Speed(seconds, task, _PROGRAM + max(needed, test_memory), plan.mode)


def pretraining_seconds(
    model: nn.Module, size: int, *, num_images: int, device: torch.device | str = "cpu"
) -> float:
    """The time to train a classifier on so many images, extrapolated from one small batch."""
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-12, fused=True)
    x = torch.zeros(_BATCH, 3, size, size, device=device)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        _synchronize(device)
        return time.perf_counter() - began

    step()
    return num_images * _typical(step) / _BATCH


def _extrapolated(tasks: Tasks, sizes: TaskSizes | None, timed: Callable[[Tasks], float]) -> float:
    """Seconds of work; very long work is extrapolated linearly from smaller tasks."""
    if not isinstance(tasks, FewShot):
        timed(tasks)
        return _typical(lambda: timed(tasks))
    # The first call compiles and allocates.
    timed(_smaller(tasks, way=1))
    times = 1
    while True:
        small = [_smaller(tasks, shot=times * s, num_query=times * q) for s, q in _SMALL]
        first = _typical(partial(timed, small[0]))
        # The differences between small tasks must be larger than the noise.
        if sizes is None or first > _LONG / 20 or times >= _MOST_TIMES:
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
    """Seconds for a task of an evaluation, which adapts to several at once, and its memory."""

    def run(num_tasks: int, tasks: Tasks = tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_tasks, split="train")
        episode = episode.to(device, learner.dtype)
        with without_dropout(learner.model):
            learner(episode, num_steps=num_steps, order="none")
        _synchronize(device)
        return time.perf_counter() - began

    # The first call compiles and allocates.
    run(1, _smaller(tasks, way=1) if isinstance(tasks, FewShot) else tasks)
    with MemoryProbe() as peak:
        alone = run(1)
    if sizes is not None:
        # Tasks that vary in size are adapted to one by one.
        seconds = _extrapolated(tasks, sizes, partial(run, 1))
        return seconds, _largest_memory(tasks, sizes, partial(run, 1))
    at_once = stack_size(peak.bytes)
    num_tasks = min(at_once, max(1, int(_LONG / alone)))
    seconds = alone if alone >= _LONG else _typical(lambda: run(num_tasks)) / num_tasks
    return seconds, peak.bytes * at_once


def _largest_memory(tasks: Tasks, sizes: TaskSizes, work: Callable[[Tasks], object]) -> int:
    """Bytes of the largest tasks: those of the weights, and of every image, from small tasks."""
    found = []
    for number in _FEW:
        small = _smaller(tasks, shot=number, num_query=number)
        with MemoryProbe() as peak:
            work(small)
        found.append((2 * number * _SMALL_WAY, peak.bytes))
    (few, least), (many, more) = found
    return int(least + max(more - least, 0) / (many - few) * (sizes.largest - few))


def _smaller(tasks: Tasks, *, way: int | None = None, shot: int = 1, num_query: int = 1) -> FewShot:
    """Tasks with fewer images of the same size."""
    assert isinstance(tasks, FewShot)
    size = tasks.input_shape[-1]
    return random_images(size, way=way or tasks.way, shot=shot, num_query=num_query)


def _typical(work: Callable[[], float]) -> float:
    """The median of some rounds, or the first if it is long."""
    times = [work()]
    while times[0] < _LONG and (len(times) < _ROUNDS or sum(times) < _SECONDS):
        times.append(work())
    return statistics.median(times)


def _synchronize(device: torch.device | str) -> None:
    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()
