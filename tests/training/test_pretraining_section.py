"""Pretraining as the first part of a training, distillation, and models of all kinds."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from alfa.build import build_tasks
from alfa.config import compose, parse_experiment
from alfa.errors import ConfigError, Stopped
from alfa.models import Conv4, Head, Headed
from alfa.runs import Run, load_backbone
from alfa.training import Pretraining, Trainer, pretrain, pretrain_run, train_run
from alfa.training._pretrain import WEIGHTS

SMALL = {"num_epochs": 2, "batch_size": 9, "learning_rate": 0.02}


@pytest.fixture
def experiment(spots):
    def make(pretraining: dict | None = SMALL, *, head: dict | None = None, **model):
        content = {
            "tasks": {"name": "images", "dataset": "spots", "way": 3, "shot": 2, "num_query": 3},
            "model": {"name": "conv4", "filters": 4, "num_blocks": 2, **model},
            "init": {"name": "prototype-head"},
            "inner": {"num_steps": 0},
            "outer": {
                "num_iterations": 2,
                "num_tasks": 1,
                "validate_every": 1,
                "num_val_tasks": 1,
            },
            "test": {"num_tasks": 2, "ensemble": 1},
        }
        given = {"pretraining": pretraining, "head": head}
        return parse_experiment({**content, **{k: v for k, v in given.items() if v is not None}})

    return make


# In a training


def test_a_training_begins_with_pretraining(experiment, tmp_path) -> None:
    works, messages = [], []

    def on_progress(progress):
        works.append(progress.work)
        messages.append(progress.message)

    run = Run.new(tmp_path / "run", experiment(frozen=True))
    train_run(run, on_progress=on_progress)
    done = [w.done for w in works if w is not None and w.what == "pretraining"]
    assert done == [1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11, 12, 12]
    assert sum("pretraining" in (message or "") for message in messages) == 2
    alone = pretrain_run(
        Run.new(tmp_path / "alone", experiment(None)), options=Pretraining(**SMALL)
    )
    trained = load_file(run.files.backbone)
    model = Run.open(tmp_path / "run").learner().model
    for name, tensor in load_file(alone["weights"]).items():
        assert torch.equal(tensor, trained[name])
        assert torch.equal(tensor, model.get_parameter(name))


def test_without_freezing_training_starts_from_the_weights(experiment, tmp_path) -> None:
    run = Run.new(tmp_path / "run", experiment())
    train_run(run)
    trained, model = load_file(run.files.backbone), Run.open(run.path).learner().model
    # Adam changes each weight by at most its learning rate in each of two iterations.
    for name, tensor in trained.items():
        torch.testing.assert_close(model.get_parameter(name), tensor, rtol=0, atol=0.0021)
    assert not torch.equal(model.get_parameter("conv1.weight"), trained["conv1.weight"])


def test_stopped_pretraining_resumes_to_the_same_numbers(experiment, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("alfa.training._pretrain._SECONDS_PER_CHECKPOINT", 0.0)
    made = experiment({**SMALL, "num_distillations": 1, "optimizer": "sgd", "momentum": 0.9})
    train_run(Run.new(tmp_path / "whole", made))
    for most in (4, 9, 7, 30):
        asked = []
        try:
            train_run(
                Run.new(tmp_path / "parts", made),
                resume=most != 4,
                should_stop=lambda asked=asked, most=most: (
                    bool(asked.append(1)) or len(asked) == most
                ),
            )
        except Stopped:
            assert len(asked) == most < 30
    whole, parts = Run.open(tmp_path / "whole"), Run.open(tmp_path / "parts")
    assert parts.metrics == whole.metrics
    assert whole.files.backbone.read_bytes() == parts.files.backbone.read_bytes()


def test_a_killed_training_resumes_its_pretraining(tmp_path) -> None:
    overrides = [
        "tasks.size=16",
        "model.filters=4",
        "model.num_blocks=2",
        "pretraining.num_epochs=4",
        "pretraining.max_batches=10",
        "inner.num_steps=1",
        "outer.num_iterations=2",
        "outer.validate_every=1",
        "outer.num_val_tasks=2",
        "test.num_tasks=2",
    ]
    # The first process to need a kernel compiles it, and other processes round differently from
    # it, so this process computes neither of the runs below.
    made = compose("strokes", method="maml", overrides=overrides)
    train_run(Run.new(tmp_path / "compiled", made))
    sets = [part for override in overrides for part in ("--set", override)]
    command = [sys.executable, "-m", "alfa", "train", "strokes", "--method", "maml", *sets]
    command += ["--or-resume", "--threads", "1", "--out"]
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    state = parts / "pretraining" / "state.safetensors"
    with subprocess.Popen([*command, str(parts)], **quiet) as process:
        while not state.exists() and process.poll() is None:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert not (parts / "pretraining" / WEIGHTS).exists()
    for path in (parts, whole):
        subprocess.run([*command, str(path)], check=True, **quiet)
    assert Run.open(parts).metrics == Run.open(whole).metrics


def test_given_weights_replace_pretraining(experiment, tmp_path) -> None:
    pretrain_run(Run.new(tmp_path / "before", experiment(None)), options=Pretraining(**SMALL))
    weights = str(tmp_path / "before" / WEIGHTS)
    with_both = experiment(weights=weights)
    assert with_both.fingerprint() == experiment(None, weights=weights).fingerprint()
    assert Run.new(tmp_path / "run", with_both).pretraining is None
    train_run(Run.new(tmp_path / "run", with_both))
    assert not (tmp_path / "run" / "pretraining").exists()


def test_the_section_is_part_of_the_experiment(experiment) -> None:
    assert "pretraining" not in experiment(None).training_settings()
    one, two = experiment(), experiment({**SMALL, "num_epochs": 3})
    assert one.fingerprint() != two.fingerprint() != experiment(None).fingerprint()


def test_a_frozen_model_needs_weights_or_pretraining(experiment, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"model\.frozen is true, .* add a \[pretraining\]"):
        train_run(Run.new(tmp_path / "run", experiment(None, frozen=True)))
    assert not (tmp_path / "run").exists()
    Trainer.from_run(Run.new(tmp_path / "run", experiment(frozen=True)))


def test_tasks_without_images_are_an_error(tmp_path) -> None:
    content = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp"}, "pretraining": SMALL}
    with pytest.raises(ConfigError, match="have no images"):
        train_run(Run.new(tmp_path / "run", parse_experiment(content)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"num_epoch": 3}, r"pretraining\.num_epoch is not a known key.*mean 'num_epochs'"),
        ({"num_epochs": 0}, r"pretraining\.num_epochs is 0, but must be greater than or equal"),
        ({"num_epochs": True}, r"pretraining\.num_epochs is true, but must be a number"),
        ({"batch_size": 1}, r"`batch_size` must be at least 2, got 1"),
        ({"optimizer": "lbfgs"}, r"pretraining\.optimizer is 'lbfgs', but must be 'adam' or 'sgd'"),
        ({"momentum": 0.9}, r"`momentum` is 0\.9, but only the optimizer 'sgd'"),
        ({"decay_epochs": [3]}, r"`decay_epochs` is \[3\], but only the schedule 'step'"),
        ({"distillation_weight": 2}, r"`distillation_weight` must be from 0 to 1, got 2"),
    ],
)
def test_faults_of_the_section_are_reported(experiment, given, fault) -> None:
    with pytest.raises(ConfigError, match=fault):
        experiment(given)


def test_options_have_one_default_in_files_and_in_python(experiment) -> None:
    assert experiment({}).pretraining == Pretraining()
    made = experiment({"schedule": "step", "decay_epochs": [1, 3]})
    assert made.pretraining == Pretraining(schedule="step", decay_epochs=(1, 3))


# Steps


def test_rates_follow_the_schedule() -> None:
    steps = Pretraining(learning_rate=0.1, schedule="step", decay_epochs=(60, 80), decay_factor=0.1)
    assert [round(steps.rate(epoch), 6) for epoch in (0, 59, 60, 79, 80)] == [
        0.1,
        0.1,
        0.01,
        0.01,
        0.001,
    ]
    cosine = Pretraining(learning_rate=0.2, num_epochs=4)
    assert cosine.rate(0) == 0.2
    assert cosine.rate(2) == pytest.approx(0.1)
    assert cosine.rate(3, 1.0) == pytest.approx(0, abs=1e-12)


def plain_generation(model, teacher, batches, *, rate, momentum, decay):
    """Train a model as torch's documentation does."""
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum, weight_decay=decay)
    for x, y in batches:
        optimizer.zero_grad()
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
        if teacher is not None:
            with torch.no_grad():
                q = F.softmax(teacher(x) / 3, 1)
            p = F.softmax(outputs / 3, 1)
            loss = 0.7 * loss + 0.3 * 9 * (q * (q.log() - p.log())).sum(1).mean()
        loss.backward()
        optimizer.step()


class Plain(nn.Module):
    """A module of a user, whose last linear layer is the head."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.Tanh())
        self.classify = nn.Linear(6, num_outputs)

    def forward(self, x):
        return self.classify(self.body(x))


def test_distillation_equals_a_plain_loop(experiment, tmp_path) -> None:
    made = experiment(None)
    tasks, options = build_tasks(made), {"momentum": 0.9, "weight_decay": 0.01}
    pretraining = Pretraining(
        num_epochs=2,
        batch_size=9,
        learning_rate=0.05,
        optimizer="sgd",
        schedule="step",
        num_distillations=1,
        temperature=3.0,
        distillation_weight=0.3,
        **options,
    )
    model = Plain(6)
    student = Plain(6)
    expected = copy.deepcopy(model), copy.deepcopy(student)
    pretrain(model, tasks, tmp_path / "out", new_model=lambda _: student, options=pretraining)
    from alfa.training._pretrain import _Images

    images = _Images([tasks.images], pretraining, 0)
    batches = [
        [batch for n in numbers for batch in images.epoch(n)] for numbers in ((0, 1), (2, 3))
    ]
    plain = {"rate": 0.05, "momentum": 0.9, "decay": 0.01}
    plain_generation(expected[0], None, batches[0], **plain)
    plain_generation(expected[1], expected[0], batches[1], **plain)
    for name, parameter in expected[1].named_parameters():
        torch.testing.assert_close(model.get_parameter(name), parameter, rtol=1e-4, atol=1e-6)


# Models


def test_any_module_can_be_pretrained(experiment, tmp_path) -> None:
    tasks = build_tasks(experiment(None))
    model = Plain(6)
    options = Pretraining(num_epochs=20, batch_size=18, learning_rate=0.02)
    result = pretrain(model, tasks, tmp_path / "out", options=options)
    assert result["epochs"][0]["loss"] > 2 * result["loss"]
    saved = load_file(tmp_path / "out" / WEIGHTS)
    assert set(saved) == {"body.1.weight", "body.1.bias", "body.2.weight", "body.2.bias"}
    other = Plain(3)
    load_backbone(other, tmp_path / "out" / WEIGHTS)
    assert torch.equal(other.body[1].weight, model.body[1].weight)


class Scaled(Head):
    """A head with weights of its own."""

    task_parameters = ("weight",)

    def __init__(self, feature_shape, num_outputs, *, generator=None) -> None:
        super().__init__()
        shape = num_outputs, *feature_shape
        self.weight = nn.Parameter(torch.randn(shape, generator=generator).flatten(1))

    def fit(self, z, y, way):
        members = F.one_hot(y, way).to(z.dtype)
        return {"weight": members.mT @ F.normalize(z, dim=-1)}

    def forward(self, z):
        return 5 * F.normalize(z, dim=-1) @ F.normalize(self.weight, dim=-1).mT


def test_a_model_with_a_head_can_be_pretrained(experiment, tmp_path) -> None:
    tasks = build_tasks(experiment(None))
    backbone = Conv4(tasks.input_shape, 1, filters=4, num_blocks=2)
    model = Headed(backbone, Scaled(backbone.feature_shape, 6))
    before = model.head.weight.detach().clone()
    options = Pretraining(num_epochs=20, batch_size=18, learning_rate=0.02)
    result = pretrain(model, tasks, tmp_path / "out", options=options)
    assert result["epochs"][0]["loss"] > 1.5 * result["loss"]
    assert not torch.equal(model.head.weight, before)
    other = Conv4(tasks.input_shape, 3, filters=4, num_blocks=2)
    load_backbone(other, tmp_path / "out" / WEIGHTS)
    assert torch.equal(other.conv2.weight, model.backbone.conv2.weight)


def test_the_head_takes_part_if_it_is_the_classifier(experiment, tmp_path, monkeypatch) -> None:
    from alfa.models import HEADS, register_head

    monkeypatch.setattr(HEADS, "_parts", dict(HEADS._parts))
    register_head("scaled")(Scaled)
    losses = {}
    for classifier in ("linear", "head"):
        made = experiment({**SMALL, "classifier": classifier}, head={"name": "scaled"})
        made = made.model_copy(update={"init": type(made.init)(name="task-head")})
        train_run(Run.new(tmp_path / classifier, made))
        result = json.loads((tmp_path / classifier / "pretraining" / "result.json").read_text())
        losses[classifier] = result["loss"]
    assert losses["linear"] != losses["head"]
    with pytest.raises(ConfigError, match=r"classifier is 'head', but .* has no \[head\]"):
        train_run(Run.new(tmp_path / "none", experiment({**SMALL, "classifier": "head"})))
    assert not Path(tmp_path / "none").exists()
