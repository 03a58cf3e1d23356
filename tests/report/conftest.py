"""Small trained runs to draw."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alfa.config import compose
from alfa.report.load import TrainedRun, load_run
from alfa.runs import Run
from alfa.training import train_run

TINY = (
    "outer.num_iterations=10",
    "outer.validate_every=5",
    "outer.num_val_tasks=4",
    "test.num_tasks=5",
    "model.hidden=[8]",
    "tasks.num_query=10",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TrainedRun]:
    """Small complete runs, by their settings."""
    done: dict[tuple[str, ...], TrainedRun] = {}

    def get(*overrides: str, title: str | None = None) -> TrainedRun:
        if overrides not in done:
            path = tmp_path_factory.mktemp("runs") / "my-run"
            train_run(Run.new(path, compose("sinusoid", overrides=[*TINY, *overrides])))
            done[overrides] = load_run(path, title)
        return done[overrides]

    return get
