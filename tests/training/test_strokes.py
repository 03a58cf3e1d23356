"""Meta-learning on generated characters, without any dataset."""

from __future__ import annotations

import pytest

from alfa.config import compose
from alfa.runs import Run
from alfa.training import train_run

SMALL = [
    "model.filters=16",
    "outer.num_iterations=40",
    "outer.validate_every=40",
    "outer.num_val_tasks=5",
    "test.num_tasks=40",
    "test.ensemble=1",
]


@pytest.fixture(scope="module")
def accuracies(tmp_path_factory) -> dict[str, float]:
    """The accuracies of both methods on the same tasks after the same number of iterations."""
    found = {}
    for method in ("maml", "alfa+maml"):
        path = tmp_path_factory.mktemp("strokes") / "run"
        experiment = compose("strokes", method=method, overrides=SMALL)
        result = train_run(Run.new(path, experiment))
        found[method] = result["test"]["accuracy"]
    return found


def test_both_methods_learn_beyond_chance(accuracies) -> None:
    # Chance is 0.2, and 40 iterations are few.
    assert accuracies["maml"] > 0.4
    assert accuracies["alfa+maml"] > 0.6


def test_alfa_with_maml_is_at_least_level_with_maml(accuracies) -> None:
    assert accuracies["alfa+maml"] >= accuracies["maml"]
