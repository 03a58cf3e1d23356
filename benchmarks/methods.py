"""All methods on 5-way 5-shot CIFAR-FS, with the same backbone, tasks, and seed.

    python benchmarks/methods.py run [NAME...]   trains and tests the methods (default: all)
    python benchmarks/methods.py time            measures an iteration of all tested methods
    python benchmarks/methods.py state           shows the progress of every method
    python benchmarks/methods.py report          writes docs/results/methods.md

Needs the prepared dataset in `ALFA_DATA`. Runs are in runs/methods. The script resumes an
interrupted run and skips methods with results. `time` needs an otherwise idle machine; its rounds
alternate between the methods. Methods on features of a pretrained backbone are in docs/features.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _common import choose, command, figure, progress, table, write_part

from alfa._io import write_atomic
from alfa._runtime import usable_cpus
from alfa.bench.speed import measure_speed, random_images
from alfa.build import build_learner, trainer_options
from alfa.cli.start import Computing
from alfa.config import Experiment, compose
from alfa.evaluation import evaluate_run, mean_and_interval
from alfa.methods import METHODS
from alfa.runs import Run

RUNS = Path("runs/methods")
RESULTS = Path("docs/results/methods.json")
PAGE = Path("docs/results/methods.md")
# Outer iterations of methods with and without inner steps.
LENGTH, CHEAP_LENGTH = 2_000, 6_000
NUM_TASKS = 600
# All methods are compared with these.
BASELINES = ("maml", "alfa+maml")
# Methods for the features of a pretrained backbone.
ON_FEATURES = ("balanced-ridge", "prototype", "ridge", "logistic")
NAMES = [name for name in METHODS if name.removeprefix("alfa+") not in ON_FEATURES]
TIMED_ROUNDS = 3


def experiment(name: str) -> Experiment:
    """Return the experiment of a method: its recipe on the paper's tasks, but shorter."""
    num_steps = compose("cifar-fs", method=name).inner.num_steps
    length = LENGTH if num_steps else CHEAP_LENGTH
    overrides = [f"outer.num_iterations={length}", f"test.num_tasks={NUM_TASKS}", "test.ensemble=1"]
    return compose("cifar-fs", method=name, overrides=overrides)


def run(*names: str) -> None:
    for name in names or NAMES:
        if name not in known():
            train(name)


def train(name: str) -> None:
    path, wanted = RUNS / name, experiment(name)
    length, num_tasks = wanted.outer.num_iterations, wanted.test.num_tasks
    words = ["cifar-fs", "--method", name, "--out", str(path), "--or-resume"]
    settings = {
        "outer.num_iterations": length,
        "test.num_tasks": num_tasks,
        "test.ensemble": 1,
    }
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(command("train", *words), stdout=subprocess.DEVNULL)
    # The memory of this process alone, not of all children so far.
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the training of {name} failed; run the command again to resume it.")
    opened = Run(path)
    assert opened.result is not None
    Computing().set_up(opened.experiment)
    tested = evaluate_run(opened)
    capability = torch.backends.cpu.get_cpu_capability()
    results = known()
    results[name] = {
        "test": tested.as_dict(),
        "per_task": tested.per_task,
        "best_iteration": opened.result["best_iteration"],
        "num_iterations": opened.result["num_iterations"],
        "num_meta_parameters": opened.result["num_meta_parameters"],
        "seconds": opened.result["seconds"],
        "memory": usage.ru_maxrss * 1024,
        "data": opened.signature.data,
        "machine": f"{usable_cpus()} CPU cores ({capability}), torch {torch.__version__}",
    }
    write_atomic(RESULTS, (json.dumps(results, sort_keys=True) + "\n").encode())
    print(name, figure(results[name]["test"]), flush=True)


def time() -> None:
    """Measure the iterations of all tested methods on the same random images, in turns."""
    results = known()
    names = [name for name in NAMES if name in results]
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(TIMED_ROUNDS):
        for name in names:
            # Methods without inner steps train longer, but with tasks of the same size.
            wanted = experiment(name)
            t = wanted.tasks.options
            tasks = random_images(32, way=t["way"], shot=t["shot"], num_query=t["num_query"])
            learner = build_learner(wanted, tasks)
            options = trainer_options(wanted, learner, tasks)
            speed = measure_speed(
                learner, tasks, num_tasks=wanted.outer.num_tasks, objective=options["objective"]
            )
            times[name].append(speed.iteration)
            print(
                f"round {number + 1} of {TIMED_ROUNDS}: {name} {speed.iteration:.3f} s", flush=True
            )
    for name, values in times.items():
        results[name]["iteration"] = statistics.median(values)
    write_atomic(RESULTS, (json.dumps(results, sort_keys=True) + "\n").encode())


def known() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def state() -> None:
    results = known()
    for name in NAMES:
        status = "tested" if name in results else ""
        print(f"{name:20}{progress(RUNS / name):7,}  {status}".rstrip())


@dataclass(frozen=True)
class Compared:
    """The paired difference of two accuracies in points, with its 95 % interval."""

    mean: float
    interval: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} +- {self.interval:.2f}"


def difference(found: dict[str, Any], other: dict[str, Any]) -> Compared:
    """Compare two methods on the same tasks."""
    assert found["data"] == other["data"], "the datasets differ"
    ours, theirs = (torch.tensor(x["per_task"], dtype=torch.float64) for x in (found, other))
    mean, interval = mean_and_interval(100 * (ours - theirs))
    assert interval is not None
    return Compared(mean, interval)


def report() -> None:
    results = known()
    if not results:
        sys.exit("There are no results; run `python benchmarks/methods.py run` first.")
    head = ["method", "iterations", "accuracy", "s per iteration", "parameters", "memory"]
    head += [f"minus {METHODS[name].title}" for name in BASELINES]
    rows = []
    for name in sorted(results, key=lambda n: -results[n]["test"]["accuracy"]):
        found = results[name]
        trains = found["num_meta_parameters"] > 0 and found["seconds"] > 0
        count = found["num_iterations"]
        rows.append(
            [
                METHODS[name].title,
                f"{count:,}" if trains else "-",
                figure(found["test"]),
                f"{found['iteration']:.2f}" if trains and "iteration" in found else "-",
                f"{found['num_meta_parameters']:,}",
                f"{found['memory'] / 1e9:.1f} GB",
                *(
                    str(difference(found, results[base]))
                    if base in results and base != name
                    else "-"
                    for base in BASELINES
                ),
            ]
        )
    machines = sorted({found["machine"] for found in results.values()})
    lines = [*table(head, rows), f"Machine: {'; '.join(machines)}.", ""]
    missing = [METHODS[name].title for name in NAMES if name not in results]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    write_part(PAGE, "methods.py", lines)


if __name__ == "__main__":
    choose(__doc__, run, time, state, report)
