"""Methods on pretrained backbones learn generated characters, well above chance (20 %)."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from alfa.config import compose
from alfa.data import FewShot
from alfa.runs import Run
from alfa.training import train_run

# Enough for a tiny backbone to become useful; the recipes take hundreds of epochs.
_PRETRAINING = [
    "num_epochs=2",
    "batch_size=64",
    "optimizer=adam",
    "momentum=0",
    "learning_rate=0.01",
    "schedule=cosine",
    "decay_epochs=[]",
    "augment=false",
    "max_batches=25",
]
_SMALL = [
    "model.filters=12",
    "tasks.num_query=5",
    "outer.validate_every=10",
    "outer.num_val_tasks=4",
    "test.num_tasks=30",
    "test.ensemble=1",
    *(f"pretraining.{option}" for option in _PRETRAINING),
]


def accuracy(folder, method: str, *overrides: str) -> float:
    experiment = compose("strokes", method=method, overrides=[*_SMALL, *overrides])
    result = train_run(Run.new(folder / method, experiment))
    return float(result["test"]["accuracy"])


@pytest.mark.parametrize(
    ("method", "least"),
    [("rfs", 0.6), ("rfs-distill", 0.4), ("baseline++", 0.5), ("act2param", 0.5)],
)
def test_a_frozen_backbone_is_enough(tmp_path, method: str, least: float) -> None:
    more = ["outer.num_iterations=20"]
    if method == "rfs-distill":
        more.append("pretraining.num_distillations=1")
    if method == "rfs":
        more.append("pretraining.max_batches=40")
    assert accuracy(tmp_path, method, *more) > least


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("unicorn-maml", ["outer.num_iterations=5"]),
        (
            "alfa+unicorn-maml",
            ["outer.num_iterations=20", "inner.num_steps=5", "optimizer.learning_rate=0.02"],
        ),
    ],
)
def test_inner_steps_adapt_a_pretrained_backbone(tmp_path, method: str, more: list[str]) -> None:
    small = ["outer.validate_every=20", "outer.num_val_tasks=4", "test.num_tasks=20"]
    assert accuracy(tmp_path, method, *small, *more) > 0.42


def test_latent_codes_learn(tmp_path) -> None:
    more = ["outer.num_iterations=15", "outer.num_tasks=2", "optimizer.learning_rate=0.002"]
    assert accuracy(tmp_path, "leo", *more) > 0.42


@pytest.fixture
def with_classes(monkeypatch) -> None:
    """Fill in the classes of the labels."""
    real = FewShot.episode

    def episode(self, first, *, num_tasks, split="train", seed=0):
        chosen, _ = self.draw(first, num_tasks=num_tasks, split=split, seed=seed)
        drawn = real(self, first, num_tasks=num_tasks, split=split, seed=seed)
        return dataclasses.replace(drawn, classes=torch.from_numpy(chosen))

    monkeypatch.setattr(FewShot, "episode", episode)


def test_a_conditioned_network_learns(tmp_path, with_classes) -> None:
    more = ["outer.num_iterations=40", "pretraining=none", "optimizer.learning_rate=0.01"]
    assert accuracy(tmp_path, "tadam", *more) > 0.4
