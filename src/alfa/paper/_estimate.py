"""What jobs will cost on this machine, before they are run."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

import alfa
from alfa.bench.speed import Speed, measure_speed, pretraining_seconds
from alfa.config import Experiment
from alfa.errors import AlfaError
from alfa.paper._job import PRETRAINING, QUICK_PRETRAINING, Job
from alfa.paper._state import State, has_trained, look
from alfa.train import Run
from alfa.train.files import write_json

FILE = "speeds.json"


@dataclass(frozen=True)
class Cost:
    """What is left to do of a job.

    Attributes:
        seconds: of training, validation and tests.
        memory: bytes that its process needs.
        trains: there is something to train.
        mode: what of an iteration it keeps in memory, as `alfa.bench.speed.Speed` has it.
        pretraining: of the seconds, those of a backbone that other jobs begin with as well; it
            counts for the first of them.
    """

    seconds: float
    memory: int
    trains: bool
    mode: str = ""
    pretraining: float = 0.0


def estimate(
    jobs: Sequence[Job],
    out: Path,
    *,
    device: torch.device | str = "cpu",
    before: Callable[[Job], None] = lambda job: None,
    on_measured: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Cost]:
    """Costs by the names of jobs; what is done costs nothing.

    Jobs that differ only in their data are measured once, and what was measured is kept.

    Args:
        jobs: to estimate.
        out: where measurements are kept.
        device: where to compute.
        before: called before each job.
        on_measured: is told how many of the jobs are estimated, and all of them.
    """
    left = [job for job in jobs if any(look(job, c)[0] != State.DONE for c in job.cells)]
    speeds, costs = _read(out / FILE), {}
    begun: set[Path] = set()
    for number, job in enumerate(left):
        on_measured(number, len(left))
        before(job)
        kind = _kind(job.experiment, device)
        if kind not in speeds:
            speeds[kind] = measure_speed(job.experiment, device=device)
            write_json(out / FILE, {key: asdict(speed) for key, speed in speeds.items()})
        costs[job.name] = cost_of(job, speeds[kind])
        # Jobs may begin with the same backbone, which the first of them makes.
        if job.pretraining is not None and job.pretraining not in begun:
            begun.add(job.pretraining)
            key = f"pretraining {_kind(job.experiment, device)}"
            if key not in speeds:
                options = QUICK_PRETRAINING if job.is_quick else PRETRAINING
                seconds = pretraining_seconds(job.experiment, options, device=device)
                speeds[key] = Speed(seconds, 0.0, 0)
                write_json(out / FILE, {k: asdict(speed) for k, speed in speeds.items()})
            cost, seconds = costs[job.name], speeds[key].iteration
            costs[job.name] = replace(cost, seconds=cost.seconds + seconds, pretraining=seconds)
    on_measured(len(left), len(left))
    return costs


def cost_of(job: Job, speed: Speed) -> Cost:
    """What is left to do of a job, given how fast it is."""
    outer, test = job.experiment.outer, job.experiment.test
    num_iterations = outer.num_iterations if speed.iteration else 0
    num_epochs = max(1, -(-num_iterations // outer.validate_every))
    done, is_tested = _progress(job)
    seconds = max(num_iterations - done, 0) * speed.iteration
    members = min(test.ensemble, num_epochs)
    num_tests = members * sum(
        cell.judged_on is not None and look(job, cell)[0] != State.DONE for cell in job.cells
    )
    if not is_tested:
        num_tests += 1 + (members if members > 1 else 0)
        # The last validation is at the end, whether or not an epoch ends there.
        num_left = num_epochs - done // outer.validate_every
        seconds += max(num_left, 0) * outer.num_val_tasks * speed.task
    seconds += num_tests * test.num_tasks * speed.task
    return Cost(seconds, speed.memory, trains=speed.iteration > 0, mode=speed.mode)


def _progress(job: Job) -> tuple[int, bool]:
    """Iterations that are done, and whether a training of that length is complete."""
    run = Run(job.path)
    try:
        metrics = run.read_metrics() if run.exists else []
        result = run.read_result() if run.exists else None
    except AlfaError:
        return 0, False
    if result is not None:
        wanted = job.experiment.outer.num_iterations
        return int(result["num_iterations"]), has_trained(result, wanted)
    return (int(metrics[-1]["iteration"]) if metrics else 0), False


def _kind(experiment: Experiment, device: torch.device | str) -> str:
    """What decides the speed of an experiment: all but its data, on this machine."""
    tasks = {k: v for k, v in experiment.tasks.options.items() if k != "dataset"}
    content = {
        "tasks": tasks,
        "model": experiment.model.model_dump(),
        "init": experiment.init.model_dump(),
        "rule": experiment.rule.model_dump(),
        "inner": experiment.inner.model_dump(),
        "num_tasks": experiment.outer.num_tasks,
        "engine": experiment.engine.model_dump(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": platform.node(),
        "versions": [alfa.__version__, torch.__version__],
    }
    return json.dumps(content, sort_keys=True)


def _read(path: Path) -> dict[str, Speed]:
    try:
        return {key: Speed(**value) for key, value in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        # What was measured before can be measured again.
        return {}
