"""Backbones: pretraining as classifiers, saving, and loading."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from alfa.config import Part, parse_experiment
from alfa.data._store import Index, checksum
from alfa.errors import (
    AlfaWarning,
    BusyError,
    CheckpointError,
    ConfigError,
    DamagedError,
    DivergedError,
    Stopped,
)
from alfa.models import MLP, MODELS, Conv4, ResNet18, register_model
from alfa.runs import Checkpoint, Run, load_backbone, save_backbone
from alfa.training import Pretraining, pretrain_run, train_run
from alfa.training._pretrain import PREVIOUS, RESULT, STATE, WEIGHTS

OPTIONS = Pretraining(num_epochs=4, batch_size=9, learning_rate=0.02)


@pytest.fixture
def experiment(spots):
    def make(seed: int = 0, **model):
        return parse_experiment(
            {
                "seed": seed,
                "tasks": {
                    "name": "images",
                    "dataset": "spots",
                    "way": 3,
                    "shot": 2,
                    "num_query": 3,
                },
                "model": {"name": "conv4", "filters": 4, "num_blocks": 2, **model},
                "outer": {
                    "num_iterations": 1,
                    "num_tasks": 1,
                    "validate_every": 1,
                    "num_val_tasks": 1,
                },
                "test": {"num_tasks": 2, "ensemble": 1},
            }
        )

    return make


@pytest.fixture
def pretrained(experiment, tmp_path) -> Path:
    pretrain_run(Run.new(tmp_path / "pretrained", experiment()), options=OPTIONS)
    return tmp_path / "pretrained" / WEIGHTS


# Pretraining


def test_classes_are_told_apart(experiment, tmp_path) -> None:
    options = Pretraining(num_epochs=30, batch_size=18, learning_rate=0.02)
    result = pretrain_run(Run.new(tmp_path / "out", experiment()), options=options)
    # Classes of nine images are too small for held-out images.
    assert result["num_classes"] == 6
    assert result["num_images"] == 54
    assert result["accuracy"] is None
    assert result["epochs"][0]["loss"] > 2 * result["loss"]
    assert json.loads((tmp_path / "out" / RESULT).read_text()) == result


def test_some_images_of_large_classes_are_held_out(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "nothing"))
    made = parse_experiment(
        {
            "tasks": {"name": "images", "dataset": "strokes", "size": 16, "way": 2},
            "model": {"name": "conv4", "filters": 2, "num_blocks": 1},
        }
    )
    options = Pretraining(num_epochs=1, batch_size=16, max_batches=3)
    result = pretrain_run(Run.new(tmp_path / "out", made), options=options)
    assert result["num_images"] == 192 * 18
    assert 0 <= result["accuracy"] <= 1


def test_it_is_repeatable_and_the_seed_decides(experiment, tmp_path) -> None:
    def weights(name: str, seed: int = 0) -> torch.Tensor:
        pretrain_run(Run.new(tmp_path / name, experiment(seed)), options=OPTIONS)
        return load_file(tmp_path / name / WEIGHTS)["conv1.weight"]

    first = weights("one")
    assert torch.equal(first, weights("two"))
    assert not torch.equal(first, weights("three", seed=1))


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["every batch", "every epoch"])
@pytest.mark.parametrize("augment", [False, True])
def test_what_was_stopped_goes_on_to_the_same_numbers(
    experiment, tmp_path, monkeypatch, augment, seconds
) -> None:
    monkeypatch.setattr("alfa.training._pretrain._SECONDS_PER_CHECKPOINT", seconds)
    options = Pretraining(num_epochs=3, batch_size=9, augment=augment)
    whole = pretrain_run(Run.new(tmp_path / "whole", experiment()), options=options)

    class StopError(Exception):
        pass

    def stop_in_the_third(done, total, epoch):
        if done > 2 * total // 3 + 2:
            raise StopError

    with pytest.raises(StopError):
        pretrain_run(
            Run.new(tmp_path / "parts", experiment()),
            options=options,
            on_progress=stop_in_the_third,
        )
    assert not (tmp_path / "parts" / WEIGHTS).exists()
    seen = []
    parts = pretrain_run(
        Run.new(tmp_path / "parts", experiment()),
        options=options,
        on_progress=lambda done, total, epoch: seen.append(done),
    )
    # Resumes after two epochs, or after the last saved batch.
    assert min(seen) == (13 if seconds else 16)
    assert parts["epochs"] == whole["epochs"]
    for left, right in zip(
        load_file(tmp_path / "parts" / WEIGHTS).values(),
        load_file(tmp_path / "whole" / WEIGHTS).values(),
        strict=True,
    ):
        assert torch.equal(left, right)


def test_the_state_before_a_damaged_one_is_used(experiment, tmp_path) -> None:
    whole = pretrain_run(Run.new(tmp_path / "whole", experiment()), options=OPTIONS)
    out = tmp_path / "out"
    asked: list[int] = []
    with pytest.raises(Stopped):
        # Nine batches are an epoch and a half.
        pretrain_run(
            Run.new(out, experiment()),
            options=OPTIONS,
            should_stop=lambda: bool(asked.append(1)) or len(asked) == 9,
        )
    with safe_open(out / STATE, framework="pt") as file:
        fingerprint = file.metadata()["fingerprint"]
    kept = Checkpoint.load(out / STATE, fingerprint=fingerprint)
    before = (out / PREVIOUS).read_bytes()
    (out / PREVIOUS).unlink()
    for progress in ({}, [], {**kept.progress, "epochs": [["low", 0]]}):
        Checkpoint(kept.tensors, fingerprint, progress).save(out / STATE)
        with pytest.raises(DamagedError, match="its training progress is invalid"):
            pretrain_run(Run.new(out, experiment()), options=OPTIONS)
    (out / PREVIOUS).write_bytes(before)
    with pytest.warns(
        AlfaWarning, match=r"state\.safetensors is damaged; alfa uses the checkpoint before it"
    ):
        again = pretrain_run(Run.new(out, experiment()), options=OPTIONS)
    assert again["epochs"] == whole["epochs"]


def test_progress_counts_batches_and_tells_of_epochs(experiment, tmp_path) -> None:
    seen = []
    pretrain_run(
        Run.new(tmp_path / "out", experiment()),
        options=OPTIONS,
        on_progress=lambda done, total, epoch: seen.append((done, total, epoch is not None)),
    )
    assert seen[-1] == (24, 24, True)
    assert sum(is_epoch for *_, is_epoch in seen) == 4
    assert [done for done, _, is_epoch in seen if not is_epoch] == list(range(1, 25))


def test_several_sources_are_one_problem(experiment, spots, tmp_path) -> None:
    made = parse_experiment(
        {
            "tasks": {
                "name": "meta-dataset",
                "dataset": ["spots", "strokes"],
                "size": 8,
                "min_way": 2,
                "max_way": 4,
                "max_support": 8,
            },
            "model": {"name": "conv4", "filters": 2, "num_blocks": 1},
            "init": {"name": "zero-head"},
        }
    )
    options = Pretraining(num_epochs=1, batch_size=8, max_batches=2)
    result = pretrain_run(Run.new(tmp_path / "out", made), options=options)
    assert result["num_classes"] == 6 + 192


def test_a_folder_of_another_pretraining_is_left_alone(experiment, pretrained) -> None:
    before = pretrained.read_bytes()
    with pytest.raises(CheckpointError, match="belongs to another experiment"):
        pretrain_run(Run.new(pretrained.parent, experiment(seed=3)), options=OPTIONS)
    assert pretrained.read_bytes() == before
    for name in (STATE, PREVIOUS):
        (pretrained.parent / name).unlink()
    with pytest.raises(CheckpointError, match="but not their training state"):
        pretrain_run(Run.new(pretrained.parent, experiment()), options=OPTIONS)


def test_a_folder_of_a_run_is_left_alone(experiment, tmp_path) -> None:
    path = tmp_path / "run"
    train_run(Run.new(path, experiment()))
    before = (path / RESULT).read_bytes()
    with pytest.raises(CheckpointError, match="contains a run other than pretraining"):
        pretrain_run(Run.new(path, experiment()), options=OPTIONS)
    assert (path / RESULT).read_bytes() == before


def test_other_images_are_not_taken_for_those_it_was_trained_on(
    experiment, pretrained, spots_folder, tmp_path, monkeypatch
) -> None:
    other = tmp_path / "data"
    shutil.copytree(spots_folder, other)
    (images_file,) = other.rglob("images.npy")
    images = 255 - np.load(images_file)
    np.save(images_file, images)
    index_file = images_file.with_name("index.json")
    index = Index.from_json(index_file.read_text())
    classes = tuple(
        replace(c, checksum=checksum(images[c.first : c.first + c.count])) for c in index.classes
    )
    index_file.write_text(replace(index, classes=classes).to_json())
    monkeypatch.setenv("ALFA_DATA", str(other))
    before = {path: path.read_bytes() for path in pretrained.parent.iterdir()}
    with pytest.raises(CheckpointError, match="the data differs from the data that"):
        pretrain_run(Run.new(pretrained.parent, experiment()), options=OPTIONS)
    assert {path: path.read_bytes() for path in pretrained.parent.iterdir()} == before


def test_a_model_with_dropout_goes_on_to_the_same_numbers(
    experiment, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(MODELS, "_parts", dict(MODELS._parts))

    @register_model("dropping")
    class Dropping(MLP):
        def __init__(self, input_shape, num_outputs, *, generator=None):
            super().__init__(input_shape, num_outputs, generator=generator)
            self.drop = nn.Dropout()

        def stacked(self, params, x, *how):
            return super().stacked(params, F.dropout(self.drop(x), 0.1), *how)

    chosen = experiment().model_copy(update={"model": Part(name="dropping")})
    options = Pretraining(num_epochs=2, batch_size=9)
    whole = pretrain_run(Run.new(tmp_path / "whole", chosen), options=options)

    def stop(done, total, epoch):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain_run(Run.new(tmp_path / "parts", chosen), options=options, on_progress=stop)
    torch.manual_seed(1)
    assert (
        pretrain_run(Run.new(tmp_path / "parts", chosen), options=options)["epochs"]
        == whole["epochs"]
    )


def test_what_a_meta_learner_begins_with_does_not_matter(experiment, pretrained) -> None:
    result = pretrain_run(
        Run.new(pretrained.parent, experiment(weights="x.safetensors")), options=OPTIONS
    )
    assert len(result["epochs"]) == 4


def test_two_at_once_do_not_meet(experiment, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("alfa.runs._files._PATIENCE", 0.05)
    with (
        Run(tmp_path / "out").files.lock(),
        pytest.raises(BusyError, match="in use by another process"),
    ):
        pretrain_run(Run.new(tmp_path / "out", experiment()), options=OPTIONS)


def test_what_cannot_be_pretrained_is_said(tmp_path) -> None:
    made = parse_experiment({"tasks": {"name": "sinusoid"}, "model": {"name": "mlp"}})
    with pytest.raises(ConfigError, match="have no images"):
        pretrain_run(Run.new(tmp_path / "out", made))
    assert not (tmp_path / "out").exists()
    for name, value, least in (("batch_size", 1, 2), ("num_epochs", 0, 1), ("max_batches", 0, 1)):
        with pytest.raises(ConfigError, match=f"`{name}` must be at least {least}, got {value}"):
            Pretraining(**{name: value})
    with pytest.raises(ConfigError, match="`learning_rate` must be above 0, got 0"):
        Pretraining(learning_rate=0)


def test_a_loss_that_is_not_finite_stops_it(experiment, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "torch.nn.functional.cross_entropy",
        lambda outputs, y: outputs.sum() * float("nan"),
    )
    with pytest.raises(DivergedError, match="batch 1 in epoch 1 is not finite"):
        pretrain_run(Run.new(tmp_path / "out", experiment()), options=OPTIONS)


# Weights


def test_a_backbone_is_all_but_the_last_layer(tmp_path) -> None:
    one, other = (Conv4((3, 8, 8), n, filters=4, num_blocks=2) for n in (5, 7))
    save_backbone(one, tmp_path / "weights")
    assert not any(name.startswith("linear") for name in load_file(tmp_path / "weights"))
    head = other.linear.weight.detach().clone()
    load_backbone(other, tmp_path / "weights")
    assert torch.equal(one.conv2.weight, other.conv2.weight)
    assert torch.equal(one.norm1.bias, other.norm1.bias)
    assert torch.equal(other.linear.weight, head)


def test_training_begins_with_the_weights(experiment, pretrained, tmp_path) -> None:
    made = experiment(weights=str(pretrained))
    made = made.model_copy(
        update={"optimizer": Part(**{**made.optimizer.model_dump(), "learning_rate": 1e-12})}
    )
    train_run(Run.new(tmp_path / "run", made))
    state = Run(tmp_path / "run").load_checkpoint("last").tensors
    for name, tensor in load_file(pretrained).items():
        torch.testing.assert_close(state[f"learner.model.{name}"], tensor, rtol=0, atol=1e-6)


def test_a_run_does_not_need_the_file_again(experiment, pretrained, tmp_path) -> None:
    made = experiment(weights=str(pretrained))
    train_run(Run.new(tmp_path / "run", made))
    pretrained.unlink()
    longer = made.model_copy(update={"outer": made.outer.model_copy(update={"num_iterations": 2})})
    result = train_run(Run.new(tmp_path / "run", longer), resume=True)
    assert result["num_iterations"] == 2
    with pytest.raises(CheckpointError, match=r"the weights file .* does not exist"):
        train_run(Run.new(tmp_path / "new", made))
    assert not (tmp_path / "new").exists()


def test_where_the_weights_were_does_not_make_another_experiment(experiment) -> None:
    one, two = experiment(weights="a.safetensors"), experiment(weights="b.safetensors")
    assert one.fingerprint() == two.fingerprint()
    assert one.fingerprint() != experiment().fingerprint()


def test_weights_must_be_a_path(spots) -> None:
    with pytest.raises(ConfigError, match=r"model\.weights is 3, but must be the path"):
        parse_experiment(
            {
                "tasks": {"name": "images", "dataset": "spots"},
                "model": {"name": "conv4", "weights": 3},
            }
        )


def test_a_users_own_weights_may_have_a_head_and_statistics(tmp_path) -> None:
    model = ResNet18((3, 16, 16), 3, filters=[2, 2, 2, 2])
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    tensors["linear.weight"] = torch.zeros(1000, 2)
    tensors["norm1.running_mean"] = torch.zeros(2)
    tensors["norm1.num_batches_tracked"] = torch.tensor(4)
    save_file(tensors, tmp_path / "own")
    other = ResNet18((3, 16, 16), 3, filters=[2, 2, 2, 2])
    load_backbone(other, tmp_path / "own")
    assert torch.equal(other.block3a.conv1.weight, model.block3a.conv1.weight)


def test_weights_of_another_model_are_refused_by_name(tmp_path) -> None:
    model = Conv4((3, 8, 8), 5, filters=4, num_blocks=2)
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    tensors["conv1.weigth"] = tensors.pop("conv1.weight")
    tensors["norm2.weight"] = torch.zeros(9)
    tensors["norm1.weight"] = torch.ones(4, dtype=torch.int64)
    save_file(tensors, tmp_path / "own")
    before = model.conv2.weight.detach().clone()
    with pytest.raises(CheckpointError) as caught:
        load_backbone(model, tmp_path / "own")
    told = str(caught.value)
    assert "it lacks conv1.weight (Did you mean 'conv1.weigth'?)" in told
    assert "it has conv1.weigth, which the model lacks" in told
    assert "norm2.weight is [9], but must be [4]" in told
    assert "norm1.weight is torch.int64, but must have a floating-point type" in told
    assert torch.equal(model.conv2.weight, before)
    save_backbone(Conv4((3, 8, 8), 5, filters=4, num_blocks=3), tmp_path / "deep")
    with pytest.raises(CheckpointError, match="which the model lacks"):
        load_backbone(model, tmp_path / "deep")
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(CheckpointError, match="is damaged or not a safetensors file"):
        load_backbone(model, tmp_path / "text")


def test_perceptrons_have_a_backbone_too(tmp_path) -> None:
    save_backbone(MLP((1,), 1, hidden=[4]), tmp_path / "weights")
    model = MLP((1,), 3, hidden=[4])
    load_backbone(model, tmp_path / "weights")
    assert torch.equal(model.linear1.weight, load_file(tmp_path / "weights")["linear1.weight"])
