"""The paper's claims on data of this size: a queue of trainings, each resumable.

    python benchmarks/claims.py run [NAME...]      goes on with the queue, or with what is named
    python benchmarks/claims.py until COUNT NAME   trains one entry to a number of iterations only
    python benchmarks/claims.py state              how far every entry is
    python benchmarks/claims.py report             writes docs/results/claims.md

Needs the prepared datasets where `ALFA_DATA` says. Runs are in runs/claims; their settings,
metrics, results and checkpoints are kept in docs/results/runs/claims after every epoch, where a
queue that was stopped, on this machine or another, goes on. The paper's rows are tested on other
datasets, too, at the lengths that they are compared at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from _claims_page import (
    against_longer,
    beside_others,
    compared,
    lengths_of,
    our_defaults,
    rows_elsewhere,
    rows_of,
    runs_of,
)
from _claims_queue import ELSEWHERE, EPOCH, LENGTH, QUEUE, ROWS, Entry
from _common import choose, command, figure, keep, progress, restore, write_part

from alfa._io import write_atomic
from alfa.cli.start import set_up
from alfa.config import differing, parse_experiment, to_dict
from alfa.evaluation import evaluate_run
from alfa.runs import Run

RUNS = Path("runs/claims")
KEPT = Path("docs/results/runs/claims")
RESULTS = Path("docs/results/claims.json")
PAGE = Path("docs/results/claims.md")
NUM_TASKS = 600
# Each with its own part of the tasks, which is faster on two cores than two threads are.
PROCESSES = 2


def run(*names: str) -> None:
    for name in names or QUEUE:
        train(name, QUEUE[name].num_iterations)


def until(count: str, name: str) -> None:
    train(name, int(count))


def train(name: str, num_iterations: int) -> None:
    """Begin an entry, or go on with it, in steps whose outcome is kept."""
    path, entry = RUNS / name, QUEUE[name]
    restore(path, KEPT / name)
    # A queue that was stopped may have tested what it could not write down any more.
    note(name)
    while not is_tested(path, num_iterations):
        goal = next_goal(entry, num_iterations, progress(path), tested=lengths_known(name))
        # A test of a model that is trained further would be thrown away.
        is_tested_here = goal >= num_iterations or goal in entry.milestones
        content = entry.content(goal)
        content["test"] = {"num_tasks": NUM_TASKS if is_tested_here else 1, "ensemble": 5}
        experiment = parse_experiment(content, source=name)
        if Run(path).files.exists:
            if other := differing(Run(path).experiment, experiment):
                sys.exit(
                    f"{path} was begun with other settings than the queue has for it now: "
                    f"{', '.join(other)}; put the queue right, or remove {path} and {KEPT / name}."
                )
            words = ["--resume", str(path)]
        else:
            config = RUNS / f"{name}.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(config, tomli_w.dumps(to_dict(experiment)).encode())
            words = [str(config), "--out", str(path)]
        settings = (
            f"outer.num_iterations={goal}",
            f"test.num_tasks={content['test']['num_tasks']}",
        )
        words += [word for x in settings for word in ("--set", x)]
        words += ["--processes", str(PROCESSES)]
        subprocess.run(command("train", *words), check=True, stdout=subprocess.DEVNULL)
        keep(path, KEPT / name)
        if not is_tested_here:
            # What a single task says of a model on its way is no result to be shown.
            (KEPT / name / "result.json").unlink()
        print(f"{name}: {goal} of {num_iterations}", Run(path).metrics[-1:], flush=True)
        note(name)


def next_goal(entry: Entry, num_iterations: int, done: int, *, tested: Sequence[int]) -> int:
    """The number of iterations that an entry is to be trained to next, and kept.

    Args:
        entry: what is trained.
        num_iterations: at its end.
        done: so many are done.
        tested: lengths whose figures are known.
    """
    # It was stopped while this length was being tested: trained further, it never would be.
    if done in entry.milestones and done not in tested:
        return done
    return min((done // EPOCH + 1) * EPOCH, max(num_iterations, done))


def is_tested(path: Path, num_iterations: int) -> bool:
    """Whether a run is complete, and not only an epoch on its way."""
    result = Run(path).result
    return (
        result is not None
        # A random initialization without a rule that learns has nothing to train.
        and (progress(path) >= num_iterations or not result["num_meta_parameters"])
        and result["test"]["num_tasks"] == NUM_TASKS
    )


def note(name: str) -> None:
    """Keep the figures of a length that was tested, with those of the best model on every task."""
    run = Run(RUNS / name)
    result = run.result if run.files.exists else None
    if result is None or not is_tested(run.path, result["num_iterations"]):
        return
    length = length_of(result)
    if length not in lengths_known(name):
        set_up(run.experiment, device="cpu", threads=None)
        tested = evaluate_run(run)
        # Sums of other numbers of threads round otherwise, and a query in a thousand may change
        # sides.
        told = "the test is not repeatable"
        assert abs(tested.accuracy - result["test"]["accuracy"]) < 1e-3, told
        keys = ("test", "ensemble", "best_iteration", "val_accuracy", "seconds")
        found = {key: result[key] for key in keys if key in result}
        data = run.signature.data
        add(name, length, {**found, "per_task": tested.per_task, "data": data})
    if name in ROWS and length in (LENGTH, QUEUE[name].num_iterations):
        test_elsewhere(name, length, run)


def test_elsewhere(name: str, length: int, run: Run) -> None:
    """Test what was reached on other datasets, before it is trained further."""
    for dataset in ELSEWHERE:
        found = known()[name][str(length)]
        if dataset not in found.get("elsewhere", {}):
            set_up(run.experiment, device="cpu", threads=None)
            overrides = run.dataset_overrides(dataset)
            tested = evaluate_run(run, overrides=overrides, num_tasks=NUM_TASKS)
            data = run.tasks(overrides).signature().data
            there = {"test": tested.as_dict(), "per_task": tested.per_task, "data": data}
            found.setdefault("elsewhere", {})[dataset] = there
            add(name, length, found)
            print(name, length, dataset, figure(there["test"]), flush=True)


def length_of(result: Mapping[str, Any]) -> int:
    """What the figures of a result are kept under; what has nothing to train has a length, too."""
    return int(result["config"]["outer"]["num_iterations"])


def known() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def lengths_known(name: str) -> list[int]:
    return lengths_of(known().get(name, {}))


def add(name: str, length: int, content: Any) -> None:
    results = known()
    results.setdefault(name, {})[str(length)] = content
    write_atomic(RESULTS, (json.dumps(results, sort_keys=True) + "\n").encode())


def state() -> None:
    results = known()
    for name, entry in QUEUE.items():
        done, asked = reached(name), entry.num_iterations
        told = "tested" if str(asked) in results.get(name, {}) else ""
        # Where there is nothing to train, no iteration is made.
        print(f"{name:28}{asked if told else done:7,} of {asked:7,}  {told}".rstrip())


def reached(name: str) -> int:
    """How many iterations of an entry are done, here or in what was kept."""
    return max(progress(RUNS / name), progress(KEPT / name))


def report() -> None:
    results = known()
    if not results:
        sys.exit("not run yet: run `python benchmarks/claims.py run`.")
    lines = [*rows_of("CIFAR-FS, 5-way 5-shot", {name: name for name in ROWS}, results)]
    one_shot = {f"1-shot-{method}": method for method in ROWS}
    lines += rows_of("CIFAR-FS, 5-way 1-shot", one_shot, results)
    lines += rows_of("FC100, 5-way 5-shot", {f"fc100-{m}": m for m in ROWS}, results)
    lines += rows_elsewhere(results)
    lines += beside_others(results)
    lines += compared(results)
    lines += against_longer(results)
    lines += our_defaults(results)
    lines += runs_of(results)
    lines += left_over(results)
    write_part(PAGE, "claims.py", lines)


def left_over(results: Mapping[str, Any]) -> list[str]:
    """What of the queue has no figures yet."""
    left = {
        name: (reached(name), entry.num_iterations)
        for name, entry in QUEUE.items()
        if str(entry.num_iterations) not in results.get(name, {})
    }
    begun = [
        f"`{name}` ({done:,} of {total:,} iterations)"
        for name, (done, total) in left.items()
        if done
    ]
    others = [f"`{name}`" for name, (done, _) in left.items() if not done]
    lines = [f"Not complete yet: {', '.join(begun)}.", ""] if begun else []
    if others:
        lines += [f"Further comparisons in the queue that were not run: {', '.join(others)}.", ""]
    return lines


if __name__ == "__main__":
    choose(__doc__, run, until, state, report)
