"""What jobs will cost on this machine, before they are run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from alfa.bench.speed import Speed, measure_speed
from alfa.config import Experiment
from alfa.paper._job import Job
from alfa.paper._state import State, look
from alfa.train import Run
from alfa.train.files import write_json

FILE = "speeds.json"


@dataclass(frozen=True)
class Cost:
    """What is left to do of a job.

    Attributes:
        seconds: of training, validation and tests.
        memory: bytes that it needs beyond what the program itself takes.
    """

    seconds: float
    memory: int


def estimate(
    jobs: Sequence[Job],
    out: Path,
    *,
    device: torch.device | str = "cpu",
    before: Callable[[Job], None] = lambda job: None,
    on_measured: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Cost]:
    """Costs by the names of jobs; what is done costs nothing.

    Jobs that differ only in what does not change their speed, such as the dataset, are measured
    once, and what was measured is kept.

    Args:
        jobs: to estimate.
        out: where measurements are kept.
        device: where to compute.
        before: called before each measurement.
        on_measured: is told how many of the measurements are made.
    """
    left = [job for job in jobs if any(look(job, c)[0] != State.DONE for c in job.cells)]
    by_kind = {_kind(job.experiment, device): job for job in reversed(left)}
    speeds = _read(out / FILE)
    for number, (kind, job) in enumerate(by_kind.items()):
        on_measured(number, len(by_kind))
        if kind not in speeds:
            before(job)
            speeds[kind] = measure_speed(job.experiment, device=device)
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / FILE, {key: asdict(speed) for key, speed in speeds.items()})
    on_measured(len(by_kind), len(by_kind))
    return {job.name: _cost(job, speeds[_kind(job.experiment, device)]) for job in left}


def _cost(job: Job, speed: Speed) -> Cost:
    experiment = job.experiment
    outer, test = experiment.outer, experiment.test
    done = _iterations_done(job)
    num_iterations = outer.num_iterations if speed.iteration else 0
    # The last validation of a run is at its end, whether or not an epoch ends there.
    num_epochs = -(-num_iterations // outer.validate_every) - done // outer.validate_every
    num_epochs = max(num_epochs, 0 if done else 1)
    members = min(test.ensemble, max(1, -(-num_iterations // outer.validate_every)))
    num_tests = 1 + (members if members > 1 else 0)
    num_tests += members * sum(cell.judged_on is not None for cell in job.cells)
    num_tasks = num_epochs * outer.num_val_tasks + num_tests * test.num_tasks
    seconds = (num_iterations - done) * speed.iteration + num_tasks * speed.task
    return Cost(max(seconds, 0.0), speed.memory)


def _iterations_done(job: Job) -> int:
    run = Run(job.path)
    metrics = run.read_metrics() if run.exists else []
    return int(metrics[-1]["iteration"]) if metrics else 0


def _kind(experiment: Experiment, device: torch.device | str) -> str:
    """What decides the speed of an experiment on a device."""
    tasks = {k: v for k, v in experiment.tasks.options.items() if k != "dataset"}
    content = {
        "tasks": tasks,
        "model": experiment.model.model_dump(),
        "init": experiment.init.name,
        "rule": experiment.rule.name,
        "inner": experiment.inner.model_dump(),
        "num_tasks": experiment.outer.num_tasks,
        "engine": experiment.engine.model_dump(),
        "device": str(device),
        "torch": torch.__version__,
    }
    return json.dumps(content, sort_keys=True)


def _read(path: Path) -> dict[str, Speed]:
    try:
        return {key: Speed(**value) for key, value in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        # What was measured before can be measured again.
        return {}
