"""Small experiments, and what one compares of their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alfa.config import Experiment, load_experiment
from alfa.rules import RULES

TINY = (
    "outer.num_iterations=20",
    "outer.max_skipped=0",
    "outer.validate_every=5",
    "outer.num_val_tasks=4",
    "test.num_tasks=5",
    "model.hidden=[8]",
    "tasks.num_query=10",
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def tiny() -> Callable[..., Experiment]:
    """A built-in experiment made small, with further overrides."""

    def make(*overrides: str, base: str = "sinusoid-alfa") -> Experiment:
        return load_experiment(base, [*TINY, *overrides])

    return make


@pytest.fixture
def tensors() -> Callable[..., dict[str, bytes]]:
    """The exact content of a run's checkpoint, without the times in its header."""

    def read(path: Path, name: str = "last") -> dict[str, bytes]:
        content = load_file(path / "checkpoints" / f"{name}.safetensors")
        return {key: tensor.numpy().tobytes() for key, tensor in content.items()}

    return read


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after the test which rules it registered."""
    monkeypatch.setattr(RULES, "_parts", dict(RULES._parts))
