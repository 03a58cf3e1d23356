"""Methods with their own update rule learn generated characters."""

import pytest

from alfa.build import build_learner
from alfa.config import compose
from alfa.runs import Run
from alfa.training import train_run

# A large step size, since there are few iterations
SMALL = [
    "model.filters=8",
    "optimizer.learning_rate=0.01",
    "outer.num_iterations=40",
    "outer.validate_every=40",
    "outer.num_val_tasks=2",
    "test.num_tasks=30",
    "test.ensemble=1",
]


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("meta-sgd", ["rule.start=0.1"]),
        ("meta-curvature", ["rule.learning_rate=0.1"]),
        ("meta-lstm", []),
        ("maml", ["rule.name=momentum"]),
    ],
)
def test_the_method_learns_beyond_chance(tmp_path, method, overrides) -> None:
    experiment = compose("strokes", method=method, overrides=[*SMALL, *overrides])
    result = train_run(Run.new(tmp_path / "run", experiment))
    assert result["test"]["accuracy"] > 0.4  # chance is 0.2
    # The outer loop trained the rule, but a bias before batch norm has no gradient.
    run = Run.open(tmp_path / "run")
    start, trained = build_learner(experiment, run.signature).rule, run.learner("best").rule
    for name, before in start.named_parameters():
        if not name.endswith("diagonal"):
            assert not before.equal(trained.get_parameter(name)), name
