"""The paper's claims on data of this size: a queue of trainings, each resumable.

    python benchmarks/claims.py run [NAME...]      goes on with the queue, or with what is named
    python benchmarks/claims.py until COUNT NAME   trains one entry to a number of iterations only
    python benchmarks/claims.py state              how far every entry is

Needs the prepared datasets where `ALFA_DATA` says. Runs are in runs/claims; their settings,
metrics, results and checkpoints are kept in docs/results/runs/claims after every epoch, where a
queue that was stopped, on this machine or another, goes on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from _common import command, keep, progress, restore

from alfa.config import parse_experiment, to_dict
from alfa.paper._methods import METHODS, classification
from alfa.train import Run
from alfa.train.files import write_atomic

RUNS = Path("runs/claims")
KEPT = Path("docs/results/runs/claims")
# Validations, after each of which what was reached is kept.
EPOCH = 500
NUM_TASKS = 600


@dataclass(frozen=True)
class Entry:
    """One training of the queue.

    Attributes:
        method: a row of the paper's tables.
        num_iterations: to train for.
        dataset: that it is trained and tested on.
        shot: support images of a class.
        rule: options of the update rule that are not the row's.
    """

    method: str
    num_iterations: int
    dataset: str = "cifar-fs"
    shot: int = 5
    rule: Mapping[str, Any] = field(default_factory=dict)

    def content(self, num_iterations: int) -> dict[str, Any]:
        """The experiment, as in a file."""
        method = METHODS[self.method]
        method = {**method, "rule": {**method["rule"], **self.rule}}
        content = classification(self.dataset, method, shot=self.shot)
        return {**content, "outer": {**content["outer"], "num_iterations": num_iterations}}


QUEUE = {
    "random": Entry("random", EPOCH),
    "alfa+random": Entry("alfa+random", 6_000),
    "maml": Entry("maml", 15_000),
    "alfa+maml": Entry("alfa+maml", 15_000),
    "maml+l2f": Entry("maml+l2f", 6_000),
    "alfa+maml+l2f": Entry("alfa+maml+l2f", 6_000),
    **{
        f"1-shot-{method}": Entry(method, 5_000, shot=1)
        for method in ("maml", "alfa+maml", "alfa+random")
    },
    **{
        f"fc100-{method}": Entry(method, 4_000, dataset="fc100") for method in ("maml", "alfa+maml")
    },
}


def run(*names: str) -> None:
    for name in names or QUEUE:
        train(name, QUEUE[name].num_iterations)


def until(count: str, name: str) -> None:
    train(name, int(count))


def train(name: str, num_iterations: int) -> None:
    """Begin an entry, or go on with it, in steps whose outcome is kept."""
    path = RUNS / name
    restore(path, KEPT / name)
    while not is_tested(path, num_iterations):
        reached = progress(path)
        goal = min((reached // EPOCH + 1) * EPOCH, max(num_iterations, reached))
        is_last = goal >= num_iterations
        content = QUEUE[name].content(goal)
        # A test of a model that is trained further would be thrown away.
        content["test"] = {"num_tasks": NUM_TASKS if is_last else 1, "ensemble": 5}
        if Run(path).exists:
            words = ["--resume", str(path)]
        else:
            config = RUNS / f"{name}.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
            text = tomli_w.dumps(to_dict(parse_experiment(content, source=name)))
            write_atomic(config, text.encode())
            words = [str(config), "--out", str(path)]
        settings = (
            f"outer.num_iterations={goal}",
            f"test.num_tasks={content['test']['num_tasks']}",
        )
        words += [word for x in settings for word in ("--set", x)]
        subprocess.run(command("train", *words), check=True, stdout=subprocess.DEVNULL)
        keep(path, KEPT / name)
        print(f"{name}: {goal} of {num_iterations}", Run(path).read_metrics()[-1:], flush=True)


def is_tested(path: Path, num_iterations: int) -> bool:
    """Whether a run is complete, and not only an epoch on its way."""
    result = Run(path).read_result()
    return (
        result is not None
        # A random initialization without a rule that learns has nothing to train.
        and (progress(path) >= num_iterations or not result["num_meta_parameters"])
        and result["test"]["num_tasks"] == NUM_TASKS
    )


def state() -> None:
    for name, entry in QUEUE.items():
        reached = max(progress(RUNS / name), progress(KEPT / name))
        print(f"{name:24}{reached:7,} of {entry.num_iterations:7,}")


if __name__ == "__main__":
    chosen = {f.__name__: f for f in (run, until, state)}
    if len(sys.argv) < 2 or sys.argv[1] not in chosen:
        sys.exit(__doc__)
    chosen[sys.argv[1]](*sys.argv[2:])
