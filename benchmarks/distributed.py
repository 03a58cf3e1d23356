"""Speed of several processes, and a Ray cluster that loses a node.

    python benchmarks/distributed.py speed    compares one process with two
    python benchmarks/distributed.py ray      a quick table on two Ray nodes, one of which is killed
    python benchmarks/distributed.py report   writes docs/results/distributed.md

Needs an idle machine with two cores. `speed` needs the prepared dataset cifar-fs in `ALFA_DATA`,
and `ray` the extra `cluster`.
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
from alfa.training import OuterStep, Trainer

RESULTS = Path("docs/results/distributed.json")
PAGE = Path("docs/results/distributed.md")
FOLDER = Path("runs/ray")
# Outer iterations per round, and rounds, of ALFA + MAML on each dataset.
WORKLOADS = {"cifar-fs": (4, 12), "strokes": (10, 12), "sinusoid": (100, 12)}


class Rounds:
    """Rounds of outer iterations on a dataset."""

    def __init__(self, dataset: str, processes: Processes) -> None:
        experiment = compose(dataset, method="alfa+maml", overrides=["outer.num_tasks=4"])
        tasks = build_tasks(experiment)
        learner = build_learner(experiment, tasks)
        trainer = Trainer(learner, tasks, **trainer_options(experiment, learner, tasks))
        self.step = OuterStep(trainer, processes=processes)
        self.step.make_plan()
        self.iteration, self.processes = 0, processes

    def __call__(self, count: int) -> float:
        """Run some iterations; return the seconds per iteration."""
        began = time.perf_counter()
        for _ in range(count):
            self.step(self.iteration)
            self.iteration += 1
        return (time.perf_counter() - began) / count

    def exchange(self, count: int) -> float:
        """Sum random gradients over the processes; return the seconds per sum."""
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
            kind, name, number = order
            if name not in made:
                made[name] = Rounds(name, processes)
            orders.send(made[name](number) if kind == "round" else made[name].exchange(number))


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

    def two(kind: str, name: str, number: int) -> float:
        for pipe, _ in pipes:
            pipe.send((kind, name, number))
        return max(pipe.recv() for pipe, _ in pipes)

    found: dict[str, Any] = {}
    for name, (number, rounds) in WORKLOADS.items():
        alone = Rounds(name, ALONE)
        times: dict[str, list[float]] = {}
        for turn in range(rounds + 1):
            for threads, setting in ((1, "1 process, 1 thread"), (2, "1 process, 2 threads")):
                set_threads(threads)
                seconds = alone(number)
                if turn:
                    times.setdefault(setting, []).append(seconds)
            seconds = two("round", name, number)
            if turn:
                times.setdefault("2 processes", []).append(seconds)
        parameters = sum(p.numel() for p in alone.step.parameters)
        found[name] = {
            "seconds": {setting: min(each) for setting, each in times.items()},
            "exchange": min(two("exchange", name, 20) for _ in range(10)),
            "bytes": 4 * (parameters + 1),
        }
        print(name, found[name], flush=True)
        keep("speed", found)
    for pipe, _ in pipes:
        pipe.send(None)


def ray() -> None:
    """Reproduce a table without Ray, on two nodes, and on two nodes of which one is killed."""
    from ray.cluster_utils import Cluster

    shutil.rmtree(FOLDER, ignore_errors=True)
    words = ["reproduce", "table8", "--quick", "--threads", "1", "--json"]
    subprocess.run(command(*words, "--out", str(FOLDER / "alone")), check=True, capture_output=True)
    found: dict[str, Any] = {}
    for name in ("two nodes", "two nodes of which one is killed"):
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
            if name != "two nodes":
                # In the middle: some models are complete, and each node trains one.
                while len(list(out.rglob("result.json"))) < 3:
                    time.sleep(0.01)
                done_then = len(list(out.rglob("result.json")))
                cluster.remove_node(second, allow_graceful=False)
            output, error = process.communicate()
        assert process.returncode == 0, error
        same = [_result(file) == _result(_twin(file, out)) for file in _results(FOLDER / "alone")]
        found[name] = {
            "seconds": time.perf_counter() - began,
            "done_when_killed": done_then,
            "cells": len(json.loads(output)),
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
            best = min(time for key, time in seconds.items() if key.startswith("1 process"))
            rows.append(
                [
                    f"`{name}`",
                    *(f"{1000 * time:,.1f} ms" for time in seconds.values()),
                    f"**{best / seconds['2 processes']:.2f}**",
                    f"{1000 * found['exchange']:.1f} ms",
                    f"{found['bytes'] / 1e6:.2f} MB",
                ]
            )
        head = ["one outer iteration of 4 tasks", *next(iter(known()["speed"].values()))["seconds"]]
        head += ["speedup by two processes", "time to sum gradients", "gradient size"]
        lines += table(head, rows)
        lines += [
            "ALFA + MAML; best of 12 alternating rounds. The speedup is relative to the faster",
            "setting of one process. An iteration of the MLP (`sinusoid`) takes about as long as",
            "four messages between processes, so one process is fastest.",
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
        head = [
            "Table 8, quick",
            "time",
            "models complete when killed",
            "models equal to a run without Ray",
        ]
        lines += table(head, rows)
    write_part(PAGE, "distributed.py", lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["ray"]:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # With this setting, Ray uses 127.0.0.1 on Linux, too, instead of another address of this
        # machine, on which the nodes do not listen.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    choose(__doc__, speed, ray, report)
