"""Run folders that look as if cells had been run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alfa.config import to_dict
from alfa.paper import Cell
from alfa.train import Run


@pytest.fixture
def pretend(tmp_path) -> Callable[..., Path]:
    """Write the folder of a run of a cell, with the figures that are given."""

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
        run = Run(path)
        run.write_config(experiment)
        done = experiment.outer.num_iterations if num_iterations is None else num_iterations

        def test(figure: float) -> dict[str, Any]:
            if cell.metric == "mse":
                return {"loss": figure, "interval": interval, "num_tasks": 600}
            return {
                "loss": 1.0,
                "interval": 0.1,
                "accuracy": figure,
                "accuracy_interval": interval,
                "num_tasks": 600,
            }

        for iteration in (500, 1000):
            name = "val_loss" if cell.metric == "mse" else "val_accuracy"
            run.append_metrics({"iteration": iteration, "val_loss": 1.0, name: value})
        mark = {"run": cell.run, "is_quick": True}
        if complete:
            run.write_result(
                {
                    "test": test(value - 0.01),
                    "ensemble": {**test(value), "num_models": experiment.test.ensemble},
                    "num_iterations": done,
                    "num_meta_parameters": num_meta_parameters,
                    "seconds": 60.0,
                    "config": to_dict(experiment),
                    **({"paper": mark} if quick else {}),
                }
            )
        for dataset, figure in (elsewhere or {}).items():
            (path / "tests").mkdir(exist_ok=True)
            content = {**test(figure), "num_iterations": done}
            (path / "tests" / f"{dataset}.json").write_text(json.dumps(content))
        if quick:
            (path / ".paper.json").write_text(json.dumps(mark))
        return path

    return make
