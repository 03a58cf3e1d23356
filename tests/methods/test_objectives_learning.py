"""MAML++, ANIL, BOIL, Reptile, and iMAML learn to recognize generated characters."""

from __future__ import annotations

import pytest

from alfa.build import build_learner, build_tasks, trainer_options
from alfa.config import compose
from alfa.evaluation import evaluate
from alfa.runs import Run
from alfa.training import Trainer

SMALL = [
    "tasks.way=3",
    "tasks.shot=3",
    "tasks.num_query=3",
    "model.filters=8",
    "outer.validate_every=1000",
    "outer.num_val_tasks=1",
    "test.num_tasks=1",
    "engine.memory=store",
]
# A few iterations need larger steps than the 50,000 of the published settings.
FAST = "optimizer.learning_rate=0.01"


@pytest.mark.parametrize(
    ("name", "num_iterations", "gain", "overrides"),
    [
        ("maml++", 50, 0.3, [FAST]),
        ("anil", 60, 0.3, [FAST, "rule.learning_rate=0.1"]),
        ("boil", 60, 0.3, [FAST]),
        # These two take smaller outer steps, and many inner steps improve random weights, too.
        ("reptile", 70, 0.05, ["rule.learning_rate=0.003", "inner.num_test_steps=8"]),
        ("imaml", 60, 0.05, ["optimizer.learning_rate=0.003", "inner.num_test_steps=2"]),
    ],
)
def test_a_method_learns(tmp_path, name, num_iterations, gain, overrides) -> None:
    options = [*SMALL, f"outer.num_iterations={num_iterations}", *overrides]
    experiment = compose("strokes", method=name, overrides=options)
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)

    def accuracy() -> float:
        num_steps = experiment.inner.num_test_steps
        found = evaluate(learner, tasks, num_tasks=40, split="test", num_steps=num_steps)
        assert found.accuracy is not None
        return found.accuracy

    before = accuracy()
    trainer = Trainer(learner, tasks, **trainer_options(experiment, learner, tasks))
    trainer.fit(Run.new(tmp_path / "run", experiment))
    after = accuracy()
    # Chance is one third.
    assert after > max(0.5, before + gain)
