"""The paper's claims, tested with a queue of resumable runs.

    python benchmarks/claims.py run [NAME...]      trains the queue, or the named entries
    python benchmarks/claims.py until COUNT NAME   trains one entry for COUNT iterations
    python benchmarks/claims.py state              shows the progress of every entry
    python benchmarks/claims.py report             writes docs/results/claims.md

Needs the prepared datasets in `ALFA_DATA`. Runs are in runs/claims. After every epoch, the script
copies their files to docs/results/runs/claims. It resumes an interrupted queue from these copies,
also on another machine. The paper's methods are also tested on other datasets.
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
    accuracy_table,
    claim_tables,
    default_table,
    longer_maml_table,
    other_code_table,
    other_datasets_table,
    run_table,
    tested_lengths,
)
from _claims_queue import EPOCH, LENGTH, METHODS, OTHER_DATASETS, QUEUE, Entry
from _common import choose, command, figure, keep, progress, restore, write_part

from alfa._io import write_atomic
from alfa.cli.start import Computing
from alfa.config import differing, parse_experiment, to_dict
from alfa.evaluation import evaluate_run
from alfa.runs import Run

RUNS = Path("runs/claims")
KEPT = Path("docs/results/runs/claims")
RESULTS = Path("docs/results/claims.json")
PAGE = Path("docs/results/claims.md")
NUM_TASKS = 600
# On two cores, two processes are faster than two threads.
PROCESSES = 2


def run(*names: str) -> None:
    for name in names or QUEUE:
        train(name, QUEUE[name].num_iterations)


def until(count: str, name: str) -> None:
    train(name, int(count))


def train(name: str, num_iterations: int) -> None:
    """Start or resume an entry, and keep its files after every epoch."""
    path, entry = RUNS / name, QUEUE[name]
    restore(path, KEPT / name)
    # An interrupted queue may have tested the run without recording the result.
    record(name)
    while not is_tested(path, num_iterations):
        goal = next_goal(entry, num_iterations, progress(path), tested=known_lengths(name))
        # The test of an intermediate model would be discarded, so it has a single task.
        is_tested_here = goal >= num_iterations or goal in entry.milestones
        content = entry.content(goal)
        content["test"] = {"num_tasks": NUM_TASKS if is_tested_here else 1, "ensemble": 5}
        experiment = parse_experiment(content, source=name)
        if Run(path).files.exists:
            if other := differing(Run(path).experiment, experiment):
                sys.exit(
                    f"{path} has other settings than the queue: {', '.join(other)}; correct the "
                    f"queue, or delete {path} and {KEPT / name}."
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
            # A test on a single task is not a result.
            (KEPT / name / "result.json").unlink()
        print(f"{name}: {goal} of {num_iterations}", Run(path).metrics[-1:], flush=True)
        record(name)


def next_goal(entry: Entry, num_iterations: int, done: int, *, tested: Sequence[int]) -> int:
    """Return the number of iterations at which the next part of a run ends.

    Args:
        entry: the entry of the queue.
        num_iterations: the iterations of the complete run.
        done: the completed iterations.
        tested: the lengths with results.
    """
    # The test of this milestone was interrupted; it must be repeated before training continues.
    if done in entry.milestones and done not in tested:
        return done
    return min((done // EPOCH + 1) * EPOCH, max(num_iterations, done))


def is_tested(path: Path, num_iterations: int) -> bool:
    """Return whether a run is complete and was tested on all tasks."""
    result = Run(path).result
    return (
        result is not None
        # A random init with a fixed rule has no meta-parameters and needs no training.
        and (progress(path) >= num_iterations or not result["num_meta_parameters"])
        and result["test"]["num_tasks"] == NUM_TASKS
    )


def record(name: str) -> None:
    """Store the results of a tested run, including the accuracy on every task."""
    run = Run(RUNS / name)
    result = run.result if run.files.exists else None
    if result is None or not is_tested(run.path, result["num_iterations"]):
        return
    length = int(result["config"]["outer"]["num_iterations"])
    if length not in known_lengths(name):
        Computing().set_up(run.experiment)
        tested = evaluate_run(run)
        # The number of threads changes the rounding, which may flip one query in a thousand.
        difference = abs(tested.accuracy - result["test"]["accuracy"])
        assert difference < 1e-3, "the test is not repeatable"
        keys = ("test", "ensemble", "best_iteration", "val_accuracy", "seconds")
        found = {key: result[key] for key in keys if key in result}
        data = run.signature.data
        add(name, length, {**found, "per_task": tested.per_task, "data": data})
    if name in METHODS and length in (LENGTH, QUEUE[name].num_iterations):
        test_on_other_datasets(name, length, run)


def test_on_other_datasets(name: str, length: int, run: Run) -> None:
    for dataset in OTHER_DATASETS:
        found = known()[name][str(length)]
        if dataset not in found.get("other_datasets", {}):
            Computing().set_up(run.experiment)
            overrides = run.dataset_overrides(dataset)
            tested = evaluate_run(run, overrides=overrides, num_tasks=NUM_TASKS)
            data = run.tasks(overrides).signature().data
            other = {"test": tested.as_dict(), "per_task": tested.per_task, "data": data}
            found.setdefault("other_datasets", {})[dataset] = other
            add(name, length, found)
            print(name, length, dataset, figure(other["test"]), flush=True)


def known() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def known_lengths(name: str) -> list[int]:
    return tested_lengths(known().get(name, {}))


def add(name: str, length: int, content: Any) -> None:
    results = known()
    results.setdefault(name, {})[str(length)] = content
    write_atomic(RESULTS, (json.dumps(results, sort_keys=True) + "\n").encode())


def state() -> None:
    results = known()
    for name, entry in QUEUE.items():
        done, total = reached(name), entry.num_iterations
        status = "tested" if str(total) in results.get(name, {}) else ""
        # A tested entry without meta-parameters has no iterations.
        print(f"{name:28}{total if status else done:7,} of {total:7,}  {status}".rstrip())


def reached(name: str) -> int:
    """Return the completed iterations of an entry, in its run or in the kept copy."""
    return max(progress(RUNS / name), progress(KEPT / name))


def report() -> None:
    results = known()
    if not results:
        sys.exit("There are no results; run `python benchmarks/claims.py run` first.")
    five_shot = {method: method for method in METHODS}
    lines = accuracy_table("CIFAR-FS, 5-way 5-shot", five_shot, results)
    one_shot = {f"1-shot-{method}": method for method in METHODS}
    lines += accuracy_table("CIFAR-FS, 5-way 1-shot", one_shot, results)
    fc100 = {f"fc100-{method}": method for method in METHODS}
    lines += accuracy_table("FC100, 5-way 5-shot", fc100, results)
    lines += other_datasets_table(results)
    lines += other_code_table(results)
    lines += claim_tables(results)
    lines += longer_maml_table(results)
    lines += default_table(results)
    lines += run_table(results)
    lines += missing_runs(results)
    write_part(PAGE, "claims.py", lines)


def missing_runs(results: Mapping[str, Any]) -> list[str]:
    """List the entries of the queue without final results."""
    left = {
        name: (reached(name), entry.num_iterations)
        for name, entry in QUEUE.items()
        if str(entry.num_iterations) not in results.get(name, {})
    }
    started = [
        f"`{name}` ({done:,} of {total:,} iterations)"
        for name, (done, total) in left.items()
        if done
    ]
    others = [f"`{name}`" for name, (done, _) in left.items() if not done]
    lines = [f"Incomplete runs: {', '.join(started)}.", ""] if started else []
    if others:
        lines += [f"Runs of the queue that were not started: {', '.join(others)}.", ""]
    return lines


if __name__ == "__main__":
    choose(__doc__, run, until, state, report)
