"""Which memory mode serves: measured on one task, and held against a budget."""

from __future__ import annotations

import copy
import os
import weakref
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from alfa.errors import check_choice
from alfa.inner.learner import Learner
from alfa.inner.memory import MemoryMode, RandomState
from alfa.types import Count, Episode

GB = 10**9

# Where the system does not say what it has.
_WHERE_UNKNOWN = 8 * GB

# Of what is free, the rest is for the data, the optimizer and everybody else.
_SHARE = 0.7


Why = Literal["as asked for", "as before", "chosen"]
"""Whether a part of a plan was asked for, taken over from an earlier plan, or chosen."""


@dataclass(frozen=True)
class MemoryPlan:
    """How an outer iteration uses memory.

    Attributes:
        mode: what is kept of every step.
        tasks_at_once: how many tasks' outer gradients are computed together.
        needed: bytes that this takes, estimated; None where there was nothing to choose, and so
            no reason to estimate it.
        budget: bytes that there are.
        why_mode: where the mode comes from.
        why_tasks: where the number of tasks comes from.
    """

    mode: MemoryMode
    tasks_at_once: Count
    needed: int | None
    budget: int
    why_mode: Why
    why_tasks: Why

    def __str__(self) -> str:
        tasks = "1 task" if self.tasks_at_once == 1 else f"{self.tasks_at_once} tasks"
        why_mode = "" if self.why_mode == self.why_tasks else f" ({self.why_mode})"
        text = f"memory: {self.mode}{why_mode}, {tasks} at once ({self.why_tasks})"
        if self.needed is None:
            return text
        fits = "" if self.needed <= self.budget else ", which may not be enough"
        return (
            f"{text}; needs about {self.needed / GB:.1f} GB "
            f"of a budget of {self.budget / GB:.1f} GB{fits}"
        )


def plan_memory(
    learner: Learner,
    episode: Episode,
    *,
    memory: Literal["auto", "store", "recompute"] = "auto",
    tasks_at_once: int | None = None,
    budget: int | None = None,
    before: MemoryPlan | None = None,
    num_sharing: int = 1,
) -> MemoryPlan:
    """Choose the fastest mode that fits a budget.

    Args:
        learner: what is to be trained.
        episode: tasks of the size that it will be trained on.
        memory: a mode to keep to, or ``"auto"``.
        tasks_at_once: a number of tasks to keep to.
        budget: bytes; by default most of what is free.
        before: an earlier plan, to keep to in what is not asked for.
        num_sharing: processes that share the memory of this machine, and so the budget.
    """
    check_choice("memory", memory, ("auto", "store", "recompute"))
    # The probe may leave the process with memory that then no longer counts as free.
    available = int(_SHARE * free_memory(episode.support_x.device)) if budget is None else budget
    available //= num_sharing
    modes: tuple[MemoryMode, ...] = ("store", "recompute")
    if learner.order == "first":
        # It keeps nothing of the steps that could be computed again.
        modes = ("store",)
    counts: tuple[int, ...] = (episode.num_tasks, 1)
    why_mode: Why = "chosen"
    why_tasks: Why = "chosen"
    if before is not None:
        modes, why_mode = (before.mode,), "as before"
        # There may be fewer tasks for each process than there were then.
        counts, why_tasks = (min(before.tasks_at_once, episode.num_tasks),), "as before"
    if memory != "auto":
        modes, why_mode = (memory,), "as asked for"
    if tasks_at_once is not None:
        counts, why_tasks = (min(tasks_at_once, episode.num_tasks),), "as asked for"
    ways = list(product(modes, dict.fromkeys(counts)))

    def plan(way: tuple[MemoryMode, int], needed: int | None) -> MemoryPlan:
        mode, count = way
        return MemoryPlan(mode, count, needed, available, why_mode, why_tasks)

    if len(ways) == 1:
        # Nothing is left to choose, and a probe could only fail.
        known = {} if before is None else {(before.mode, before.tasks_at_once): before.needed}
        return plan(ways[0], known.get(ways[0]))
    needed = _needed(learner, episode, ways)
    fitting = [way for way in ways if needed[way] <= available]
    way = fitting[0] if fitting else min(ways, key=needed.__getitem__)
    return plan(way, needed[way])


def _needed(
    learner: Learner, episode: Episode, ways: list[tuple[MemoryMode, int]]
) -> dict[tuple[MemoryMode, int], int]:
    """Bytes that each way of computing an outer gradient takes."""
    step, query = _stored(learner, episode[:1])
    # The weights of a step and their gradient.
    rows = 2 * sum(learner.init.layers.sizes) * episode.support_x.element_size()
    needed = {}
    for mode, count in ways:
        kept = learner.num_steps * step + query if mode == "store" else learner.num_steps * rows
        # Beside what is kept there is what the backward pass of one step or query makes.
        needed[mode, count] = count * kept + max(step, query) + step
    return needed


def _stored(learner: Learner, episode: Episode) -> tuple[int, int]:
    """Bytes that autograd keeps of the tasks, for each step and for the query.

    Only one step is kept at a time, as in a run that recomputes, so that this needs no more
    memory than such a run.
    """
    # A user's rule may count its calls; these are none.
    learner = copy.deepcopy(learner)
    learner.memory = "store"
    first = 0
    query = _kept_bytes(learner, episode, first)
    if query == 0 and learner.num_steps > 0:
        # The start is not trained: the first step keeps nothing, and only what follows it does.
        first = 1
        query = _kept_bytes(learner, episode, first)
    if first == learner.num_steps:
        return 0, query
    return max(_kept_bytes(learner, episode, first + 1) - query, 0), query


class _Kept:
    """A tensor that autograd holds for as long as this lives."""

    def __init__(self, tensor: Tensor) -> None:
        # An operation that keeps its own output would keep itself with it, for good.
        self.tensor = tensor.detach()


def _kept_bytes(learner: Learner, episode: Episode, num_steps: int) -> int:
    alive: weakref.WeakSet[_Kept] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Kept:
        kept = _Kept(tensor)
        alive.add(kept)
        return kept

    with (
        RandomState(episode.support_x.device).again(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor),
    ):
        # The outcome keeps the graph, and so every tensor that it will need, alive.
        outcome: Any = learner(episode, num_steps=num_steps)
        sizes = dict(_size(kept.tensor) for kept in alive)
        del outcome
    # What is still there, as parameters and data are, was not kept for the graph.
    return sum(size for storage, size in sizes.items() if storage.expired())


def _size(tensor: Tensor) -> tuple[StorageWeakRef, int]:
    storage = tensor.untyped_storage()
    return StorageWeakRef(storage), storage.nbytes()


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
