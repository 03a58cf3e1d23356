"""The choice of a memory mode: measure one task, and compare the estimate to a budget."""

import copy
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from alfa.errors import check_choice
from alfa.learner._learner import Learner, Outcome
from alfa.learner._memory import MemoryMode, RandomState
from alfa.types import Count, Episode

GB = 10**9

# Assumed if the system does not report its memory.
_DEFAULT_MEMORY = 8 * GB

# Fraction of the free memory to use; data, the optimizer, and other processes need the rest.
_SHARE = 0.7

Reason = Literal["requested", "resumed", "chosen"]
"""The source of a part of a plan: the caller, an earlier plan, or the estimate."""

Run = Callable[[Learner, Episode], Outcome]
"""Computes what the outer loop differentiates, such as an objective at some progress."""


def _run(learner: Learner, episode: Episode) -> Outcome:
    outcome: Outcome = learner(episode)
    return outcome


@dataclass(frozen=True)
class MemoryPlan:
    """The memory use of an outer iteration."""

    mode: MemoryMode
    tasks_at_once: Count  # number of tasks whose outer gradients are computed together
    needed: int | None  # estimate in bytes; None without a choice
    budget: int  # bytes
    mode_reason: Reason
    tasks_reason: Reason

    def __str__(self) -> str:
        tasks = "1 task" if self.tasks_at_once == 1 else f"{self.tasks_at_once} tasks"
        reason = "" if self.mode_reason == self.tasks_reason else f" ({self.mode_reason})"
        text = f"memory: {self.mode}{reason}, {tasks} at once ({self.tasks_reason})"
        if self.needed is None:
            return text
        text += f"; needs about {self.needed / GB:.1f} GB of a budget of {self.budget / GB:.1f} GB"
        return text if self.needed <= self.budget else text + ", which may not be enough"


def plan_memory(
    learner: Learner,
    episode: Episode,
    *,
    memory: Literal["auto", "store", "recompute"] = "auto",
    tasks_at_once: int | None = None,
    budget: int | None = None,
    previous: MemoryPlan | None = None,
    num_sharing: int = 1,
    runs: Sequence[Run] = (_run,),
) -> MemoryPlan:
    """Choose the fastest mode that fits a budget.

    Args:
        learner: the learner to train.
        episode: tasks of the size of the training tasks.
        memory: the requested mode, or ``"auto"``.
        tasks_at_once: the requested number of tasks.
        budget: bytes; by default most of the free memory.
        previous: an earlier plan to resume, except for requested parts.
        num_sharing: number of processes that share the memory of this machine.
        runs: functions that the outer loop differentiates in the course of the training; the plan
            fits each. By default the query loss of the adapted model.
    """
    check_choice("memory", memory, ("auto", "store", "recompute"))
    # Read it before the probe, whose memory the process may keep.
    available = int(_SHARE * free_memory(episode.support_x.device)) if budget is None else budget
    available //= num_sharing
    modes: tuple[MemoryMode, ...] = ("store", "recompute")
    if learner.order == "first":
        # It stores no steps that could be recomputed.
        modes = ("store",)
    counts: tuple[int, ...] = (episode.num_tasks, 1)
    mode_reason: Reason = "chosen"
    tasks_reason: Reason = "chosen"
    known: dict[tuple[MemoryMode, int], int | None] = {}
    if previous is not None:
        known[previous.mode, previous.tasks_at_once] = previous.needed
        modes, mode_reason = (previous.mode,), "resumed"
        # Each process may now have fewer tasks.
        counts, tasks_reason = (min(previous.tasks_at_once, episode.num_tasks),), "resumed"
    if memory != "auto":
        modes, mode_reason = (memory,), "requested"
    if tasks_at_once is not None:
        counts, tasks_reason = (min(tasks_at_once, episode.num_tasks),), "requested"
    candidates = list(product(modes, dict.fromkeys(counts)))
    if len(candidates) == 1:
        # Without a choice, a probe could only fail.
        chosen = candidates[0]
        needed = known.get(chosen)
    else:
        estimates = _needed_bytes(learner, episode, candidates, runs)
        fitting = [candidate for candidate in candidates if estimates[candidate] <= available]
        chosen = fitting[0] if fitting else min(candidates, key=estimates.__getitem__)
        needed = estimates[chosen]
    mode, count = chosen
    return MemoryPlan(mode, count, needed, available, mode_reason, tasks_reason)


def _needed_bytes(
    learner: Learner,
    episode: Episode,
    candidates: list[tuple[MemoryMode, int]],
    runs: Sequence[Run] = (_run,),
) -> dict[tuple[MemoryMode, int], int]:
    """Estimate the bytes that an outer gradient needs with each mode and number of tasks."""
    # A recomputed step saves its weights and their gradient.
    rows = 2 * sum(learner.init.layers.sizes) * episode.support_x.element_size()
    needed = dict.fromkeys(candidates, 0)
    for run in runs:
        step, rest = _saved_by_step_and_rest(learner, episode[:1], run)
        saved = {"store": learner.num_steps * step + rest, "recompute": learner.num_steps * rows}
        # The backward pass of one step or query needs memory in addition.
        more = max(step, rest) + step
        for mode, count in candidates:
            needed[mode, count] = max(needed[mode, count], count * saved[mode] + more)
    return needed


def _saved_by_step_and_rest(learner: Learner, episode: Episode, run: Run = _run) -> tuple[int, int]:
    """Measure the bytes that autograd saves for each inner step, and in addition.

    A step includes everything that `run` computes after it, such as a query loss of every step. The
    second step is measured because the first may save less: its rule has no state yet, and the
    weights of an init that is not trained have no gradient.
    """
    # A user-defined rule may count its calls.
    learner = copy.deepcopy(learner)
    learner.memory, num_steps = "store", learner.num_steps
    if num_steps < 2:
        return 0, _saved_bytes(learner, episode, run)
    learner.num_steps = 1
    first = _saved_bytes(learner, episode, run)
    learner.num_steps = 2
    step = max(_saved_bytes(learner, episode, run) - first, 0)
    return step, max(first - step, 0)


class _Saved:
    """A tensor that autograd saves."""

    def __init__(self, tensor: Tensor) -> None:
        # Without `detach`, an operation that saves its own output would hold itself forever.
        self.tensor = tensor.detach()


def _saved_bytes(learner: Learner, episode: Episode, run: Run) -> int:
    alive: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Saved:
        saved = _Saved(tensor)
        alive.add(saved)
        return saved

    with (
        RandomState(episode.support_x.device).restored(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor),
    ):
        # The outcome holds the graph and with it every saved tensor.
        outcome: Any = run(learner, episode)
        storages = [saved.tensor.untyped_storage() for saved in alive]
        sizes = {StorageWeakRef(storage): storage.nbytes() for storage in storages}
        del outcome, storages
    # Storages that outlive the graph, such as parameters and data, were not saved for it.
    return sum(size for storage, size in sizes.items() if storage.expired())


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process may still use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = _DEFAULT_MEMORY
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
