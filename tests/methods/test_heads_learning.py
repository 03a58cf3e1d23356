"""Methods without inner steps learn to classify generated characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from alfa.build import build_learner, build_tasks, trainer_options
from alfa.config import compose
from alfa.evaluation import evaluate
from alfa.training import Trainer

SMALL = (
    "tasks.size=28",
    "tasks.shot=1",
    "tasks.num_query=5",
    "model.filters=16",
    "outer.num_iterations=40",
    "outer.num_tasks=4",
    "outer.validate_every=40",
    "outer.num_val_tasks=1",
    "test.num_tasks=1",
    "test.ensemble=1",
)
# The published rates of long trainings are too small or too large for a short one.
OPTIONS = {
    "protonet": ["tasks.train_way=10"],
    "r2d2": ["tasks.train_way=10"],
    "metaoptnet": ["optimizer.learning_rate=0.03"],
    "matching": ["optimizer.learning_rate=0.003"],
    "matching-fce": ["optimizer.learning_rate=0.003"],
    "snail": [
        "model.num_blocks=3",
        "head.filters=16",
        "head.max_support=4",
        "tasks.way=2",
        "tasks.shot=2",
        "tasks.num_query=10",
        "outer.num_tasks=2",
        "outer.num_iterations=150",
        "outer.validate_every=150",
    ],
    "tpn": ["model.num_blocks=3", "optimizer.learning_rate=0.005"],
    "relation": ["model.num_blocks=2", "head.filters=16", "optimizer.learning_rate=0.01"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_short_training_improves_the_accuracy(name: str, tmp_path: Path) -> None:
    experiment = compose("strokes", method=name, overrides=[*SMALL, *OPTIONS[name]])
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    before = evaluate(learner, tasks, num_tasks=40).accuracy
    trainer = Trainer(learner, tasks, **trainer_options(experiment, learner, tasks))
    trainer.fit(tmp_path / "run")
    after = evaluate(learner, tasks, num_tasks=40).accuracy
    assert after > before + 0.05
    assert after > 0.5 + 0.1 * (tasks.way == 2)
