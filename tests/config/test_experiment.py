"""Experiments: stored, compared, and immutable."""

from __future__ import annotations

from typing import Any

import pytest

from alfa.config import compose, load_experiment, parse_experiment, to_dict

BASE: dict[str, Any] = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [8]}}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"rule": {"name": "alfa"}, "preset": "paper"},
        {"rule": {"name": "alfa", "alpha": {"source": "constant", "value": 0.1}}},
        {"rule": {"name": "learned", "beta": {"source": "learned", "start": 0.5}}},
        {"init": {"name": "attenuated", "base": {"name": "fixed", "adapt": ["*.bias"]}}},
        {"outer": {"max_gradient_norm": 3.0}, "seed": 5},
    ],
)
def test_an_experiment_written_and_read_again_is_the_same(write, change: dict[str, Any]) -> None:
    experiment = parse_experiment({**BASE, **change})
    again = load_experiment(write(to_dict(experiment)))
    assert again == experiment
    assert again.fingerprint() == experiment.fingerprint()


@pytest.mark.parametrize("override", ["outer.num_iterations=7", "test.num_tasks=3"])
def test_the_fingerprint_ignores_how_long_one_trains_and_tests(override: str) -> None:
    fingerprint = compose("sinusoid").fingerprint()
    assert compose("sinusoid", overrides=[override]).fingerprint() == fingerprint


def test_the_fingerprint_ignores_where_weights_are_read_from() -> None:
    paths = ["a.safetensors", "folder/b.safetensors"]
    first, second = (compose("sinusoid", overrides=[f"model.weights={path}"]) for path in paths)
    assert first.fingerprint() == second.fingerprint() != compose("sinusoid").fingerprint()


@pytest.mark.parametrize(
    "override",
    [
        "optimizer.learning_rate=0.5",
        "optimizer.weight_decay=0.1",
        "optimizer.name=sgd",
        "schedule.name=step",
        "schedule.warmup=5",
        "outer.num_tasks=5",
        "outer.validate_every=7",
        "outer.max_gradient_norm=1",
        "seed=1",
        "inner.num_steps=4",
        "inner.order=first",
        "inner.batch_norm=inductive",
        "tasks.num_support=5",
        "model.hidden=[40]",
        "init.name=fixed",
        "rule.generator_depth=2",
        "preset=paper",
    ],
)
def test_the_fingerprint_changes_with_what_training_goes_through(override: str) -> None:
    fingerprint = compose("sinusoid").fingerprint()
    assert compose("sinusoid", overrides=[override]).fingerprint() != fingerprint


def test_an_experiment_cannot_be_changed() -> None:
    experiment = compose("sinusoid")
    with pytest.raises(ValueError, match="frozen"):
        experiment.seed = 3
