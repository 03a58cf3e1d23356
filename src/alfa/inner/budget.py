"""Which memory mode serves: measured on one task, and held against a budget."""

from __future__ import annotations

import copy
import os
import weakref
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from alfa.errors import check_choice
from alfa.inner.learner import Learner
from alfa.inner.memory import MemoryMode
from alfa.types import Episode

GB = 10**9

# Where the system does not say what it has.
_WHERE_UNKNOWN = 8 * GB

# Of what is free, the rest is for the data, the optimizer and everybody else.
_SHARE = 0.7


@dataclass(frozen=True)
class MemoryPlan:
    """How an outer iteration uses memory.

    Attributes:
        mode: what is kept of every step.
        tasks_at_once: how many tasks' outer gradients are computed together.
        needed: bytes that this takes, estimated.
        budget: bytes that there are.
        asked: whether mode and number were asked for, not chosen.
    """

    mode: MemoryMode
    tasks_at_once: int
    needed: int
    budget: int
    asked: bool

    def __str__(self) -> str:
        tasks = "1 task" if self.tasks_at_once == 1 else f"{self.tasks_at_once} tasks"
        how = "as asked for" if self.asked else "chosen"
        fits = "" if self.needed <= self.budget else ", which may not be enough"
        return (
            f"memory: {self.mode}, {tasks} at once ({how}); needs about {self.needed / GB:.1f} GB "
            f"of a budget of {self.budget / GB:.1f} GB{fits}"
        )


def plan_memory(
    learner: Learner,
    episode: Episode,
    *,
    memory: Literal["auto", "store", "recompute"] = "auto",
    tasks_at_once: int | None = None,
    budget: int | None = None,
) -> MemoryPlan:
    """Choose the fastest mode that fits a budget.

    Args:
        learner: what is to be trained.
        episode: tasks of the size that it will be trained on.
        memory: a mode to keep to, or ``"auto"``.
        tasks_at_once: a number of tasks to keep to.
        budget: bytes; by default most of what is free.
    """
    check_choice("memory", memory, ("auto", "store", "recompute"))
    step, query = _stored(learner, episode)
    available = _SHARE * free_memory(episode.support_x.device) if budget is None else budget
    num_tasks = episode.num_tasks
    modes: tuple[MemoryMode, ...] = ("store", "recompute") if memory == "auto" else (memory,)
    counts = (num_tasks, 1) if tasks_at_once is None else (min(tasks_at_once, num_tasks),)
    # The weights of a step and their gradient.
    rows = 2 * sum(learner.init.layers.sizes) * episode.support_x.element_size()
    plans = []
    for mode in modes:
        for count in dict.fromkeys(counts):
            kept = count * (learner.num_steps * step + query)
            if mode == "recompute":
                kept = count * learner.num_steps * rows
            # Beside what is kept there is what the backward pass of one step or query makes.
            needed = kept + max(step, query) + step
            asked = len(modes) * len(counts) == 1
            plans.append(MemoryPlan(mode, count, needed, int(available), asked))
    fitting = [plan for plan in plans if plan.needed <= available]
    return fitting[0] if fitting else min(plans, key=lambda plan: plan.needed)


def _stored(learner: Learner, episode: Episode) -> tuple[int, int]:
    """Bytes that autograd keeps of one task, for each step and for the query."""
    one = episode[:1]
    # A user's rule may count its calls; these are none.
    learner = copy.deepcopy(learner)
    learner.memory = "store"
    known = {p.untyped_storage().data_ptr() for p in learner.parameters()}
    data = (one.support_x, one.support_y, one.query_x, one.query_y)
    known |= {tensor.untyped_storage().data_ptr() for tensor in data}
    steps = range(min(learner.num_steps, 2) + 1)
    counts = [_kept_bytes(learner, one, num_steps, known) for num_steps in steps]
    # The first step needs nothing where nothing before it is trained.
    return max((after - before for before, after in pairwise(counts)), default=0), counts[0]


class _Kept:
    """A tensor that autograd holds for as long as this lives."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _kept_bytes(learner: Learner, episode: Episode, num_steps: int, known: set[int]) -> int:
    alive: weakref.WeakSet[_Kept] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Kept:
        kept = _Kept(tensor)
        alive.add(kept)
        return kept

    with (
        torch.random.fork_rng(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor),
    ):
        # The outcome keeps the graph, and so every tensor that it will need, alive.
        outcome: Any = learner(episode, num_steps=num_steps)
        storages = [kept.tensor.untyped_storage() for kept in alive]
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
        del outcome
    return sum(size for pointer, size in sizes.items() if pointer not in known)


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = _WHERE_UNKNOWN
    if hasattr(os, "sysconf"):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    if limit and used and limit[0].isdigit():
        free = min(free, int(limit[0]) - int(used[0]))
    return max(free, 0)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
