"""The cost of jobs on this machine, estimated before they run."""

import json
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

import alfa
from alfa._io import write_json
from alfa.bench.speed import Speed, TaskSizes, measure_speed, pretraining_seconds, random_images
from alfa.build import build_learner, build_model, build_objective, build_tasks
from alfa.config import Experiment
from alfa.data import SOURCES, Limits, Sampler, class_names, related_classes
from alfa.errors import AlfaError
from alfa.paper._cell_status import State, cell_status, has_trained, is_done
from alfa.paper._job import PRETRAINING, QUICK_PRETRAINING, Job
from alfa.runs import Run, RunFiles
from alfa.training import Pretraining

FILE = "speeds.json"
# ImageNet represents all sources of tasks that vary in size.
_IMAGENET, _IMAGES_PER_CLASS = "md-ilsvrc", 1_300
# The number of such tasks to average.
_NUM_DRAWN = 500


@dataclass(frozen=True)
class Cost:
    """The remaining cost of a job."""

    seconds: float  # of training, validation, and tests
    memory: int  # bytes of the process
    trains: bool  # the method has meta-parameters
    mode: str = ""  # memory mode of an iteration, see `alfa.bench.speed.Speed`
    pretraining: float = 0.0  # the part of `seconds` for a backbone; the first job that needs it


def estimate(
    jobs: Sequence[Job],
    out: Path,
    *,
    device: torch.device | str = "cpu",
    before: Callable[[Job], None] = lambda job: None,
    on_measured: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Cost]:
    """Estimate the costs of the jobs that are not done, by name.

    Jobs that differ only in their data are measured once. Measurements are saved in `out`.
    `before` is called before each job, and `on_measured` with the numbers of estimated and of all
    jobs.
    """
    left = [job for job in jobs if not is_done(job)]
    speeds, costs = _read(out / FILE), {}
    backbones: set[Path] = set()

    def measured(key: str, measure: Callable[..., Speed], job: Job) -> Speed:
        if key not in speeds:
            speeds[key] = measure(job, device=device)
            write_json(out / FILE, {name: asdict(speed) for name, speed in speeds.items()})
        return speeds[key]

    for number, job in enumerate(left):
        on_measured(number, len(left))
        before(job)
        key = _speed_key(job.experiment, device)
        costs[job.name] = cost = cost_of(job, measured(key, measure_job, job))
        path, options = _pretraining(job)
        # The first of the jobs that share a backbone pretrains it.
        if options is not None and path not in backbones:
            backbones.add(path)
            per_image = measured(f"pretraining {key}", measure_pretraining, job).iteration
            seconds = per_image * _num_images(job, options)
            costs[job.name] = replace(cost, seconds=cost.seconds + seconds, pretraining=seconds)
    on_measured(len(left), len(left))
    return costs


def measure_job(job: Job, *, device: torch.device | str = "cpu") -> Speed:
    """Measure the speed of a job on random images instead of its data."""
    experiment = job.experiment
    options, engine = experiment.tasks.options, experiment.engine
    if "dataset" not in options:
        tasks = test_tasks = build_tasks(experiment)
    else:
        size = options.get("seen_size") or options["size"]
        keys = ("way", "shot", "num_query")
        counts = {key: options[key] for key in keys if key in options}
        own = {key: options[f"train_{key}"] for key in keys if f"train_{key}" in options}
        test_tasks = random_images(size, **counts)
        tasks = random_images(size, **{**counts, **own}) if own else test_tasks
    learner = build_learner(experiment, test_tasks)
    return measure_speed(
        learner,
        tasks,
        num_tasks=experiment.outer.num_tasks,
        test_tasks=test_tasks,
        objective=build_objective(experiment, learner.model, tasks),
        num_test_steps=experiment.inner.num_test_steps,
        max_gradient_norm=experiment.outer.max_gradient_norm,
        memory=engine.memory,
        tasks_at_once=engine.tasks_at_once,
        memory_budget=engine.memory_budget,
        sizes=_varied_sizes(experiment) if "max_way" in options else None,
        device=device,
    )


def _varied_sizes(experiment: Experiment) -> TaskSizes:
    """Return the sizes of tasks that vary, as if they were drawn from ImageNet."""
    options = experiment.tasks.options
    keys = ("min_way", "max_way", "max_query", "max_support")
    names = class_names(_IMAGENET, "train")
    sampler = Sampler(
        np.full(len(names), _IMAGES_PER_CLASS),
        related=related_classes(_IMAGENET, "train", names),
        limits=Limits(**{key: options[key] for key in keys}),
    )
    rng = np.random.default_rng(0)
    drawn = [sampler.draw(rng) for _ in range(_NUM_DRAWN)]
    return TaskSizes(
        statistics.fmean(float(task.num_support.sum()) for task in drawn),
        statistics.fmean(task.num_query * len(task.classes) for task in drawn),
        options["max_support"] + options["max_way"] * options["max_query"],
    )


def measure_pretraining(job: Job, *, device: torch.device | str = "cpu") -> Speed:
    """Measure the pretraining of a job's backbone on one image, as if it were an iteration."""
    size, (num_classes, _) = job.experiment.tasks.options["size"], _train_counts(job)
    model = build_model(job.experiment, (3, size, size), num_classes)
    return Speed(pretraining_seconds(model, size, num_images=1, device=device), 0.0, 0)


def _pretraining(job: Job) -> tuple[Path, Pretraining | None]:
    """Return the folder and the options of a pretraining that is left to do; None without one."""
    if job.pretraining is not None:
        return job.pretraining, QUICK_PRETRAINING if job.is_quick else PRETRAINING
    has_started = RunFiles(job.path).checkpoint("last").is_file()
    return job.path, None if has_started else job.experiment.pretraining


def _num_images(job: Job, options: Pretraining) -> int:
    """Return the number of images in all epochs of a pretraining."""
    _, num_images = _train_counts(job)
    if options.max_batches is not None:
        num_images = min(num_images, options.max_batches * options.batch_size)
    return num_images * options.num_epochs * (1 + options.num_distillations)


def _train_counts(job: Job) -> tuple[int, int]:
    """Return the published numbers of training classes and images of a job's cells."""
    dataset = job.cells[0].content["tasks"]["dataset"]
    num_classes, num_images = SOURCES.get(dataset).published["train"]
    return num_classes, num_images or num_classes * _IMAGES_PER_CLASS


def cost_of(job: Job, speed: Speed) -> Cost:
    """Return the remaining cost of a job, given its speed."""
    outer, test = job.experiment.outer, job.experiment.test
    num_iterations = outer.num_iterations if speed.iteration else 0
    num_epochs = max(1, -(-num_iterations // outer.validate_every))
    done, is_tested = _progress(job)
    seconds = max(num_iterations - done, 0) * speed.iteration
    members = min(test.ensemble, num_epochs)
    num_tests = members * sum(
        cell.test_dataset is not None and cell_status(job, cell)[0] != State.DONE
        for cell in job.cells
    )
    if not is_tested:
        num_tests += 1 + (members if members > 1 else 0)
        # The last validation is at the end, even in the middle of an epoch.
        num_left = num_epochs - done // outer.validate_every
        seconds += max(num_left, 0) * outer.num_val_tasks * speed.task
    seconds += num_tests * test.num_tasks * speed.task
    return Cost(seconds, speed.memory, trains=speed.iteration > 0, mode=speed.mode)


def _progress(job: Job) -> tuple[int, bool]:
    """Return the number of completed iterations, and whether the training is complete."""
    run = Run(job.path)
    try:
        if not run.files.exists:
            return 0, False
        if run.result is None:
            return (int(run.metrics[-1]["iteration"]) if run.metrics else 0), False
    except AlfaError:
        return 0, False
    is_complete = has_trained(run.result, job.experiment.outer.num_iterations)
    return int(run.result["num_iterations"]), is_complete


def _speed_key(experiment: Experiment, device: torch.device | str) -> str:
    """Return a key of everything that determines the speed of an experiment."""
    sections = {"model", "head", "init", "rule", "objective", "inner", "engine"}
    content = {
        "tasks": {k: v for k, v in experiment.tasks.options.items() if k != "dataset"},
        **experiment.model_dump(include=sections),
        "num_tasks": experiment.outer.num_tasks,
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
        return {}  # missing or damaged measurements are repeated
