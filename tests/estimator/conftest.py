"""Small runs, created once per worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from alfa.config import parse_experiment
from alfa.data import Strokes
from alfa.models import MODELS, register_model
from alfa.runs import Run


class Own(nn.Module):
    """A user-defined network with batch norm; the last one has a single value per channel."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, *, twice: bool = False
    ) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(input_shape[0], 6, 3, stride=2), nn.BatchNorm2d(6)
        self.last = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, num_outputs)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x))
        if self.twice:
            x = self.norm(x.relu())
        return self.head(self.last(x.relu().mean((2, 3))))


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Save an untrained run on characters with the given parts; models may use `Own`."""

    def make(**parts: dict[str, Any]) -> Path:
        content = {
            "tasks": {"name": "images", "dataset": "strokes", "size": 16, "num_query": 2},
            "model": {"name": "conv4", "filters": 4},
            "rule": {"name": "sgd"},
            "inner": {"num_steps": 2},
        }
        path = tmp_path_factory.mktemp("made") / "run"
        learner, tasks, _ = Run.new(path, parse_experiment({**content, **parts})).build("cpu")
        return Run.save(path, learner, tasks).path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODELS, "_parts", dict(MODELS._parts))
        register_model("own")(Own)
        yield make


@pytest.fixture(scope="session")
def five() -> tuple[np.ndarray, np.ndarray]:
    """Three images of each of five characters; a linear layer has five outputs."""
    images = Strokes(num_classes=5, num_examples=3, size=16).images().images[:, 0]
    return images, np.repeat(list("abcde"), 3)


@pytest.fixture(scope="session")
def run(characters_run: Path) -> Path:
    return characters_run


@pytest.fixture(scope="session")
def curves(curves_run: Path) -> Path:
    return curves_run
