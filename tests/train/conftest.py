"""Small experiments, and what one compares of their runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alfa.config import Experiment, load_experiment, to_dict
from alfa.rules import RULES
from alfa.train import Run, train

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


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory):
    """Runs that nothing interrupts, by experiment."""
    done: dict[str, Path] = {}

    def get(experiment) -> Path:
        key = json.dumps(to_dict(experiment), sort_keys=True)
        if key not in done:
            done[key] = tmp_path_factory.mktemp("unbroken") / "run"
            train(experiment, done[key])
        return done[key]

    return get


@pytest.fixture
def assert_same(tensors):
    """Two runs left the same figures and the same states, to the bit."""

    def check(path: Path, other: Path) -> None:
        assert (path / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
        for key in ("test", "best_iteration", "val_loss", "num_iterations", "config"):
            assert Run(path).read_result()[key] == Run(other).read_result()[key]
        assert tensors(path, "last") == tensors(other, "last")
        assert tensors(path, "best") == tensors(other, "best")

    return check
