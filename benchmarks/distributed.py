"""What several processes cost and bring, and a Ray cluster that loses a machine.

    python benchmarks/distributed.py speed    one process against two, side by side
    python benchmarks/distributed.py ray      a quick table on two Ray nodes, one of them killed
    python benchmarks/distributed.py report   writes docs/results/distributed.md

Needs an idle machine with two cores, for `speed` the prepared dataset cifar-fs where `ALFA_DATA`
says, and for `ray` the extra `cluster`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from _common import choose, command, table, write_part

from alfa._distributed import ALONE, Processes, joined
from alfa._io import write_atomic
from alfa._runtime import set_threads
from alfa.build import build_learner, build_tasks, trainer_options
from alfa.config import compose
from alfa.training import OuterStep

RESULTS = Path("docs/results/distributed.json")
PAGE = Path("docs/results/distributed.md")
FOLDER = Path("runs/ray")
# For each experiment: outer iterations of a round, and rounds.
WORKLOADS = {"cifar-fs-alfa": (4, 12), "strokes-alfa": (10, 12), "sinusoid-alfa": (100, 12)}

INTRO = """\
# Several processes, several machines

A run over several processes takes the same steps as one process does: each computes some of the
tasks of an iteration, and their gradients are summed in the order of the tasks (see
`alfa._distributed`). With `engine.tasks_at_once=1` the weights are the same for any number
of processes, as a rule to the last bit; where several tasks are stacked they differ by rounding.
"""

ARITHMETIC = """\
## What 8 and 64 graphics cards would give

Arithmetic; no card could be tried. An iteration of B tasks on P processes takes ceil(B / P) t + x,
where t is the time of a task and x that of the exchange. A process with one task sends and gets the
parts of its row and of the sum, 2 (P - 1) / P times the gradient.

- **8 cards, one machine.** 4-CONV has a gradient of 0.27 MB, of which each card sends 0.46 MB: at
  10 GB/s 0.05 ms, so that the latency of four exchanges counts and nothing else. ResNet12 with its
  8 million weights has 32 MB, 56 MB to send, 5.6 ms. With the paper's 4 tasks in an iteration, four
  cards have one each and four have none: four times as fast as one card, less x. With 8 tasks it is
  eight times, at 0.9 of it or better for as long as a task takes longer than 9 x: 50 ms for
  ResNet12.
- **64 cards, 8 machines**, each with 100 Gbit/s for its eight cards. ResNet12: 8 x 63 MB at 12.5
  GB/s, 40 ms. With 64 tasks in an iteration the speed is 0.9 of 64 times one card's or better if a
  task takes 0.36 s or longer; with the paper's 4 tasks it is still that of four cards.
- **Many models** need no exchange: `alfa reproduce --all --on ray` gives every card models of its
  own. Of the paper's 143 models 127 are trained: 16 rounds on 8 cards and 2 on 64, if all took
  equally long.
"""


class Rounds:
    """An experiment's outer steps, a round at a time."""

    def __init__(self, name: str, processes: Processes) -> None:
        experiment = compose(name.removesuffix("-alfa"), overrides=["outer.num_tasks=4"])
        tasks = build_tasks(experiment)
        learner = build_learner(experiment, tasks)
        options = trainer_options(experiment, learner)
        names = (
            *("optimizer", "scheduler", "num_tasks", "max_gradient_norm", "seed"),
            *("memory", "tasks_at_once", "memory_budget"),
        )
        self.step = OuterStep(
            learner,
            tasks,
            **{name: options[name] for name in names},
            device=torch.device("cpu"),
            processes=processes,
            num_sharing=1,
        )
        self.step.make_plan()
        self.iteration, self.processes = 0, processes

    def __call__(self, count: int) -> float:
        """Seconds that some iterations take."""
        began = time.perf_counter()
        for _ in range(count):
            self.step(self.iteration)
            self.iteration += 1
        return (time.perf_counter() - began) / count

    def exchange(self, count: int) -> float:
        """Seconds that the sum of gradients takes which are there already."""
        size = sum(p.numel() for p in self.step.parameters) + 1
        row = torch.randn(size)
        self.processes.any(False)
        began = time.perf_counter()
        for _ in range(count):
            self.processes.sum_in_order([row.clone()])
            self.processes.any(False)
        return (time.perf_counter() - began) / count


def _worker(rank: int, count: int, port: int, orders: Connection) -> None:
    set_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with joined() as (processes, _):
        made: dict[str, Rounds] = {}
        while (order := orders.recv()) is not None:
            what, name, number = order
            if name not in made:
                made[name] = Rounds(name, processes)
            orders.send(made[name](number) if what == "round" else made[name].exchange(number))


def speed() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    others = [
        context.Process(target=_worker, args=(rank, 2, port, pipe[1]), daemon=True)
        for rank, pipe in enumerate(pipes)
    ]
    for process in others:
        process.start()

    def two(what: str, name: str, number: int) -> float:
        for own, _ in pipes:
            own.send((what, name, number))
        return max(own.recv() for own, _ in pipes)

    found: dict[str, Any] = {}
    for name, (number, rounds) in WORKLOADS.items():
        alone = Rounds(name, ALONE)
        times: dict[str, list[float]] = {}
        for turn in range(rounds + 1):
            for threads in (1, 2):
                set_threads(threads)
                seconds = alone(number)
                if turn:
                    times.setdefault(f"1 process, {threads} threads", []).append(seconds)
            seconds = two("round", name, number)
            if turn:
                times.setdefault("2 processes", []).append(seconds)
        parameters = sum(p.numel() for p in alone.step.parameters)
        found[name] = {
            "seconds": {way: min(each) for way, each in times.items()},
            "exchange": min(two("exchange", name, 20) for _ in range(10)),
            "bytes": 4 * (parameters + 1),
        }
        print(name, found[name], flush=True)
        keep("speed", found)
    for own, _ in pipes:
        own.send(None)


def ray() -> None:
    """Three times the same table: one by one, on two nodes, and on two of which one is killed."""
    from ray.cluster_utils import Cluster

    shutil.rmtree(FOLDER, ignore_errors=True)
    words = ["reproduce", "table8", "--quick", "--threads", "1", "--json"]
    subprocess.run(command(*words, "--out", str(FOLDER / "alone")), check=True, capture_output=True)
    found: dict[str, Any] = {}
    for name in ("two nodes", "one of them killed"):
        local = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
        cluster = Cluster(
            initialize_head=True, head_node_args={**local, "include_dashboard": False}
        )
        second = cluster.add_node(**local)
        out = FOLDER / name.replace(" ", "-")
        began = time.perf_counter()
        with subprocess.Popen(
            command(*words, "--on", "ray", "--out", str(out)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "RAY_ADDRESS": cluster.address},
        ) as process:
            done_then = None
            if name == "one of them killed":
                # In the middle: some are done, and each node has one at work.
                while len(list(out.rglob("result.json"))) < 3:
                    time.sleep(0.01)
                done_then = len(list(out.rglob("result.json")))
                cluster.remove_node(second, allow_graceful=False)
            told, error = process.communicate()
        assert process.returncode == 0, error
        same = [_result(file) == _result(_twin(file, out)) for file in _results(FOLDER / "alone")]
        found[name] = {
            "seconds": time.perf_counter() - began,
            "done_when_killed": done_then,
            "cells": len(json.loads(told)),
            "same": sum(same),
            "of": len(same),
        }
        print(name, found[name], flush=True)
        cluster.shutdown()
    keep("ray", found)


def _results(folder: Path) -> list[Path]:
    return sorted(folder.rglob("result.json"))


def _twin(file: Path, out: Path) -> Path:
    return out / file.relative_to(FOLDER / "alone")


def _result(file: Path) -> dict[str, Any]:
    content = json.loads(file.read_text())
    return {key: content[key] for key in ("test", "val_loss", "best_iteration")}


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def keep(name: str, content: Any) -> None:
    text = json.dumps({**known(), name: content}, indent=1, sort_keys=True)
    write_atomic(RESULTS, (text + "\n").encode())


def report() -> None:
    lines: list[str] = []
    if "speed" in known():
        lines += ["## Speed on two cores", ""]
        rows = []
        for name, found in known()["speed"].items():
            seconds = found["seconds"]
            best = min(time for way, time in seconds.items() if way.startswith("1 process"))
            rows.append(
                [
                    f"`{name}`",
                    *(f"{1000 * time:,.1f} ms" for time in seconds.values()),
                    f"**{best / seconds['2 processes']:.2f}**",
                    f"{1000 * found['exchange']:.1f} ms",
                    f"{found['bytes'] / 1e6:.2f} MB",
                ]
            )
        head = ["an outer iteration of 4 tasks", *next(iter(known()["speed"].values()))["seconds"]]
        head += ["two against the best of one", "sum of gradients alone", "gradient"]
        lines += table(head, rows)
        lines += [
            "Best of 12 rounds in turns. An iteration of a perceptron takes about as long as four",
            "messages between processes do: for those, one process is best.",
            "",
        ]
    if "ray" in known():
        lines += ["## A Ray cluster", ""]
        rows = [
            [
                name,
                f"{found['seconds']:.0f} s",
                "-" if found["done_when_killed"] is None else str(found["done_when_killed"]),
                f"{found['same']} of {found['of']}",
            ]
            for name, found in known()["ray"].items()
        ]
        head = ["Table 8, quick", "time", "models done when it was killed", "the same as without"]
        lines += table(head, rows)
    if not PAGE.is_file():
        part = "<!-- written by benchmarks/distributed.py report -->\n<!-- end -->"
        write_atomic(PAGE, f"{INTRO}\n{part}\n\n{ARITHMETIC}".encode())
    write_part(PAGE, "distributed.py", lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["ray"]:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Whatever its name says, Ray then takes 127.0.0.1 as it is, and not another address of
        # this machine for it, at which the nodes do not listen.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    choose(__doc__, speed, ray, report)
