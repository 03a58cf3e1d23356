"""How fast an experiment is on this machine, from a few iterations on random data."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from alfa.build import build_learner, build_model, build_tasks
from alfa.config import Experiment
from alfa.data import (
    FewShot,
    ImageSet,
    Limits,
    Sampler,
    Tasks,
    class_names,
    related_classes,
)
from alfa.errors import DivergedError
from alfa.inner import GB, Learner, plan_memory
from alfa.train import Pretraining
from alfa.train.evaluate import check_finite, stack_size, without_dropout
from alfa.train.outer import shortened
from alfa.train.peak import PeakMemory

# What takes longer is timed once; an iteration that takes even longer not at all, but from smaller
# ones, where a small error of each becomes a large one.
_LONG, _LONGEST = 6.0, 300.0
# A run meets the machine's bad moments as well as its good ones: at least so many rounds, for at
# least so many seconds.
_ROUNDS, _WHILE = 3, 1.5
# Bytes of a process that trains perceptrons, whose tensors are next to nothing; see
# docs/results/estimate.md.
_PROGRAM = 400_000_000
# Where tasks differ in size: how many of them tell the average, and images of a class.
_NUM_DRAWN, _IMAGES_OF_A_CLASS = 500, 1_300
# Images of a batch that tells what a larger one takes.
_BATCH = 8
# Of smaller tasks, support and query images of a class.
_SMALL = ((1, 1), (2, 1), (1, 3))
# Images of a class, support and query each, in tasks that tell what an image takes of memory.
_FEW = (1, 3)
# Where their number differs: classes of them, and how many times these images they have at most.
_SMALL_WAY, _MOST_TIMES = 5, 16


@dataclass(frozen=True)
class Speed:
    """What an experiment costs.

    Attributes:
        iteration: seconds of an outer iteration; 0 where there is nothing to train.
        task: seconds of adapting to a task of a validation or test.
        memory: bytes that the process needs for an iteration or a test, the program itself
            among them.
        mode: how an iteration keeps what its outer gradient needs, which is chosen by the memory
            that is free; nothing where there is nothing to train.
    """

    iteration: float
    task: float
    memory: int
    mode: str = ""


def measure_speed(experiment: Experiment, *, device: torch.device | str = "cpu") -> Speed:
    """Measure an experiment, without its data.

    Args:
        experiment: whose outer iterations and tests are timed.
        device: where to compute.
    """
    tasks = _tasks(experiment)
    learner = build_learner(experiment, tasks).to(device)
    outer, engine = experiment.outer, experiment.engine
    task, test_memory = _cost_of_task(experiment, learner, tasks, device)
    parameters = list(learner.meta_parameters())
    if not parameters:
        return Speed(0.0, task, _PROGRAM + test_memory)
    episode = tasks.episode(0, num_tasks=outer.num_tasks).to(device, learner.dtype)
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

    # Tasks that come one by one take the same time each.
    num_tasks = 1 if plan.tasks_at_once == 1 else outer.num_tasks

    def iterate(tasks: Tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_tasks).to(device, learner.dtype)
        optimizer.zero_grad()
        for first in range(0, num_tasks, plan.tasks_at_once):
            outcome = learner(episode[first : first + plan.tasks_at_once])
            losses = outcome.adapted.support_losses, outcome.query_losses
            # On random images nothing need go well.
            with contextlib.suppress(DivergedError):
                check_finite(*losses, rule=experiment.rule.name, where="")
            outcome.query_losses.mean().backward()
        _wait(device)
        adapted = time.perf_counter()
        # With small models, what a training looks at counts, too.
        shortened(parameters, outer.max_gradient_norm)
        optimizer.step()
        _wait(device)
        stepped = time.perf_counter()
        return (adapted - began) * outer.num_tasks / num_tasks + stepped - adapted

    needed = plan.needed or 0
    if _sizes(experiment) is not None:
        needed = _of_largest(experiment, iterate)
    memory = _PROGRAM + max(needed, test_memory)
    return Speed(_extrapolated(experiment, tasks, iterate), task, memory, plan.mode)


def pretraining_seconds(
    experiment: Experiment, options: Pretraining, *, device: torch.device | str = "cpu"
) -> float:
    """What a backbone would take to pretrain on classes like ImageNet's, from one small batch."""
    side = experiment.tasks.options["size"]
    num_classes = len(class_names("md-ilsvrc", "train"))
    model = build_model(experiment, (3, side, side), num_classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-12, fused=True)
    x = torch.zeros(_BATCH, 3, side, side, device=device)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        _wait(device)
        return time.perf_counter() - began

    step()
    count = options.num_epochs * num_classes * _IMAGES_OF_A_CLASS
    most = options.max_batches
    if most is not None:
        count = min(count, options.num_epochs * most * options.batch_size)
    return count * _typical(step) / _BATCH


def _extrapolated(experiment: Experiment, tasks: Tasks, timed: Callable[[Tasks], float]) -> float:
    """Seconds of a work; a very long one's from smaller tasks, as time grows with the images."""
    if not isinstance(tasks, FewShot):
        timed(tasks)
        return _typical(lambda: timed(tasks))
    sizes = _sizes(experiment)
    # What is made only once is made here.
    timed(_tasks(experiment, way=1, shot=1, num_query=1))
    times = 1
    while True:
        small = [_tasks(experiment, shot=times * s, num_query=times * q) for s, q in _SMALL]
        first = _typical(partial(timed, small[0]))
        # The differences between such tasks must be larger than the noise.
        if sizes is None or first > _LONG / 20 or times >= _MOST_TIMES:
            break
        times *= 4
    if sizes is None and first * max(tasks.shot, tasks.num_query / 3) <= _LONGEST:
        return _typical(lambda: timed(tasks))
    second, third = (_typical(partial(timed, some)) for some in small[1:])
    per_shot, per_query = max(second - first, 0) / times, max(third - first, 0) / (2 * times)
    # By class, also where the number of classes differs.
    shot, num_query = (
        (tasks.shot, tasks.num_query) if sizes is None else (size / tasks.way for size in sizes)
    )
    return first + per_shot * (shot - times) + per_query * (num_query - times)


def _cost_of_task(
    experiment: Experiment, learner: Learner, tasks: Tasks, device: torch.device | str
) -> tuple[float, int]:
    """Seconds for a task of an evaluation, which adapts to several at once, and its memory."""
    num_steps = experiment.inner.num_test_steps

    def run(num_tasks: int, tasks: Tasks = tasks) -> float:
        began = time.perf_counter()
        episode = tasks.episode(0, num_tasks=num_tasks, split="train")
        episode = episode.to(device, learner.dtype)
        with without_dropout(learner.model):
            learner(episode, num_steps=num_steps, order="none")
        _wait(device)
        return time.perf_counter() - began

    # The first makes what is made only once.
    run(1, _tasks(experiment, way=1, shot=1, num_query=1) if isinstance(tasks, FewShot) else tasks)
    with PeakMemory() as peak:
        alone = run(1)
    if _sizes(experiment) is not None:
        # Tasks of different sizes come one by one.
        seconds = _extrapolated(experiment, tasks, lambda some: run(1, some))
        return seconds, _of_largest(experiment, lambda some: run(1, some))
    at_once = stack_size(peak.bytes)
    num_tasks = min(at_once, max(1, int(_LONG / alone)))
    seconds = alone if alone >= _LONG else _typical(lambda: run(num_tasks)) / num_tasks
    return seconds, peak.bytes * at_once


def _sizes(experiment: Experiment) -> tuple[float, float] | None:
    """Support and query images of a task on average, where tasks differ in them."""
    if experiment.tasks.name != "meta-dataset":
        return None
    rng = np.random.default_rng(0)
    sampler = _sampler(experiment)
    drawn = [sampler.draw(rng) for _ in range(_NUM_DRAWN)]
    support = statistics.fmean(float(task.num_support.sum()) for task in drawn)
    return support, statistics.fmean(task.num_query * len(task.classes) for task in drawn)


def _sampler(experiment: Experiment) -> Sampler:
    """Of tasks from classes like ImageNet's; what is prepared of others is not looked at."""
    options = experiment.tasks.options
    keys = ("min_way", "max_way", "max_query", "max_support")
    names = class_names("md-ilsvrc", "train")
    return Sampler(
        np.full(len(names), _IMAGES_OF_A_CLASS),
        related=related_classes("md-ilsvrc", "train", names),
        limits=Limits(**{key: options[key] for key in keys}),
    )


def _of_largest(experiment: Experiment, work: Callable[[Tasks], object]) -> int:
    """Bytes of the largest tasks, from small ones: those of the weights, and of every image."""
    options = experiment.tasks.options
    most = options["max_support"] + options["max_way"] * options["max_query"]
    found = []
    for number in _FEW:
        tasks = _tasks(experiment, shot=number, num_query=number)
        with PeakMemory() as peak:
            work(tasks)
        found.append((2 * number * _SMALL_WAY, peak.bytes))
    (few, least), (many, more) = found
    return int(least + max(more - least, 0) / (many - few) * (most - few))


def _typical(work: Callable[[], float]) -> float:
    """The median of rounds for a while, or the first if it is long."""
    times = [work()]
    while times[0] < _LONG and (len(times) < _ROUNDS or sum(times) < _WHILE):
        times.append(work())
    return statistics.median(times)


def _tasks(
    experiment: Experiment,
    *,
    way: int | None = None,
    shot: int | None = None,
    num_query: int | None = None,
) -> Tasks:
    """The experiment's tasks, on random images where they would be images."""
    options = experiment.tasks.options
    if experiment.tasks.name not in ("images", "meta-dataset"):
        return build_tasks(experiment)
    way = way or options.get("way", _SMALL_WAY)
    shot, num_query = shot or options.get("shot", 1), num_query or options.get("num_query", 1)
    side = options.get("seen_size") or options["size"]
    rng = np.random.default_rng(0)
    shape = (shot + num_query, 3, side, side)
    classes = {f"class {number}": rng.integers(0, 256, shape, np.uint8) for number in range(way)}
    images = ImageSet.of_arrays("random", {"train": classes})
    return FewShot(images, way=way, shot=shot, num_query=num_query)


def _wait(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.device(device).type == "mps":
        torch.mps.synchronize()
