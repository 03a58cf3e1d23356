"""Run folders with prescribed results, as if cells had been run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alfa.config import parse_experiment, to_dict
from alfa.data import Signature
from alfa.paper import Cell, Job
from alfa.runs import Run

ACCURACY = ("accuracy", "accuracy_interval")


@pytest.fixture(scope="session")
def smaller() -> Callable[[Job], Job]:
    """Return a function that reduces the filters of a job, and the steps and classes of ResNets."""
    few = {"wrn-28-10": {"depth": 10, "width": 1}}

    def make(job: Job) -> Job:
        content = to_dict(job.experiment)
        model, tasks, inner = content["model"], content["tasks"], content["inner"]
        if model["name"].startswith("resnet"):
            model["filters"] = [8, 8, 8, 8]
            inner |= {name: 2 for name in ("num_steps", "num_test_steps") if inner.get(name)}
        elif "dataset" in tasks:
            model |= few.get(model["name"], {"filters": 8})
        if "max_way" in tasks:
            tasks |= {"max_way": 5, "max_support": 5}
        return replace(job, experiment=parse_experiment(content, source=job.name))

    return make


@pytest.fixture
def pretend(tmp_path) -> Callable[..., Path]:
    """Return a function that writes the folder of a run with given figures."""

    def make(
        cell: Cell,
        value: float = 0.7,
        interval: float | None = 0.005,
        *,
        seed: int = 0,
        num_iterations: int | None = None,
        elsewhere: dict[str, float] | None = None,
        at: str | None = None,
        quick: bool = False,
        complete: bool = True,
        num_meta_parameters: int = 100,
    ) -> Path:
        experiment = cell.experiment.model_copy(update={"seed": seed})
        path = tmp_path / (at or f"{cell.run}/seed-{seed}")
        run = Run.new(path, experiment)
        run.create(Signature((1,), 1, "mse"))
        done = experiment.outer.num_iterations if num_iterations is None else num_iterations

        def test(figure: float, num_models: int) -> dict[str, Any]:
            figures = {"loss": 1.0, "interval": 0.1, "accuracy": None, "accuracy_interval": None}
            names = ("loss", "interval") if cell.metric == "mse" else ACCURACY
            figures |= dict(zip(names, (figure, interval), strict=True))
            return {**figures, "num_tasks": 600, "num_models": num_models}

        for iteration in (500, 1000):
            name = "val_loss" if cell.metric == "mse" else "val_accuracy"
            run.files.append_metrics({"iteration": iteration, "val_loss": 1.0, name: value})
        if complete:
            run.files.write_result(
                {
                    "test": test(value - 0.01, 1),
                    "ensemble": test(value, experiment.test.ensemble),
                    "best_iteration": done,
                    "val_loss": 1.0,
                    "num_iterations": done,
                    "num_meta_parameters": num_meta_parameters,
                    "seconds": 60.0,
                    "config": to_dict(experiment),
                    **({"paper": {"run": cell.run, "is_quick": True}} if quick else {}),
                }
            )
        for dataset, figure in (elsewhere or {}).items():
            (path / "tests").mkdir(exist_ok=True)
            content = {**test(figure, 1), "num_iterations": done}
            (path / "tests" / f"{dataset}.json").write_text(json.dumps(content))
        return path

    return make
