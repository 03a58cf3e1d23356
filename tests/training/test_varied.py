"""Training and testing on tasks that differ in their number of classes and examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from alfa.build._build import build_learner, build_tasks
from alfa.config import parse_experiment
from alfa.data import ImageSet, Limits, Varied
from alfa.errors import ConfigError, DataError
from alfa.evaluation import evaluate, evaluate_run
from alfa.inits import INITS
from alfa.optim import Adam
from alfa.runs import Run, match_tasks
from alfa.training import train_run

SMALL = {"min_way": 2, "max_way": 4, "max_query": 2, "max_support": 12}


@pytest.fixture
def experiment(spots):
    def make(init="prototype-head", rule="alfa", *, base=None, **changes):
        content = {
            "tasks": {"name": "meta-dataset", "dataset": "spots", "size": 8, **SMALL},
            "model": {"name": "conv4", "filters": 4, "num_blocks": 2},
            "init": {"name": init, **({"base": {"name": base}} if base else {})},
            "rule": {"name": rule},
            "inner": {"num_steps": 2, "order": "first", "batch_norm": "inductive"},
            "outer": {
                "num_iterations": 6,
                "num_tasks": 3,
                "validate_every": 3,
                "num_val_tasks": 4,
            },
            "test": {"num_tasks": 5, "ensemble": 2},
        }
        for key, value in changes.items():
            content[key] = {**content.get(key, {}), **value}
        return parse_experiment(content)

    return make


@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize("batch_norm", ["inductive", "transductive"])
@pytest.mark.parametrize("rule", ["sgd", "alfa"])
@pytest.mark.parametrize("init", ["prototype-head", "zero-head"])
def test_a_batch_of_unequal_tasks_has_the_gradient_of_one_task_at_a_time(
    experiment, init, rule, batch_norm, order
) -> None:
    made = experiment(init, rule, inner={"order": order, "batch_norm": batch_norm})
    tasks = build_tasks(made)
    learner = build_learner(made, tasks).double()
    parameters = list(learner.meta_parameters())
    groups = tasks.groups(0, num_tasks=12)
    assert 1 < len(groups) < 12

    def gradient(episodes) -> list[torch.Tensor]:
        total = torch.zeros((), dtype=torch.float64)
        for episode in episodes:
            total = total + learner(episode.to("cpu", torch.float64)).query_losses.sum()
        return list(torch.autograd.grad(total, parameters, materialize_grads=True))

    together = gradient(group.episode for group in groups)
    alone = gradient(tasks.episode(index, num_tasks=1) for index in range(12))
    assert any(g.any() for g in together)
    for left, right in zip(together, alone, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)


def test_an_iteration_of_training_is_that_gradient(experiment, tmp_path) -> None:
    """One step of Adam moves every weight by the sign of the gradient over all tasks."""
    made = experiment(outer={"num_iterations": 1, "num_tasks": 8})
    train_run(Run.new(tmp_path / "run", made))
    tasks = build_tasks(made)
    learner = build_learner(made, tasks)
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    losses = [learner(tasks.episode(i, num_tasks=1)).query_losses for i in range(8)]
    (gradient,) = torch.autograd.grad(torch.cat(losses).mean(), [learner.model.conv1.weight])
    Run(tmp_path / "run").load_checkpoint("last").restore(learner)
    moved = learner.model.conv1.weight.detach() - before["conv1.weight"]
    sure = gradient.abs() > 1e-6
    assert sure.float().mean() > 0.5
    assert torch.equal(moved[sure].sign(), -gradient[sure].sign())
    # Every task makes its last layer, so the model's last layer is not trained.
    assert torch.equal(learner.model.linear.weight, before["linear.weight"])


@pytest.mark.parametrize("init", ["prototype-head", "zero-head"])
def test_training_is_repeatable_and_can_be_resumed(experiment, tmp_path, init) -> None:
    whole = train_run(Run.new(tmp_path / "whole", experiment(init)))
    train_run(Run.new(tmp_path / "parts", experiment(init, outer={"num_iterations": 3})))
    parts = train_run(Run.new(tmp_path / "parts", experiment(init)), resume=True)
    for key in ("test", "ensemble", "val_loss", "best_iteration"):
        assert whole[key] == parts[key]
    assert whole["test"]["num_tasks"] == 5


def test_figures_are_in_the_order_of_the_tasks(experiment) -> None:
    made = experiment()
    tasks = build_tasks(made)
    learner = build_learner(made, tasks)
    found = evaluate(learner, tasks, num_tasks=6)
    for index in range(6):
        episode = tasks.episode(index, num_tasks=1, split="test")
        outputs = learner(episode, order="none").outputs
        right = (outputs.argmax(2) == episode.query_y).double().mean()
        assert found.per_task[index] == pytest.approx(float(right))


def test_the_mean_of_several_models_is_judged(experiment, tmp_path) -> None:
    result = train_run(Run.new(tmp_path / "run", experiment()))
    assert result["ensemble"]["num_models"] == 2
    found = evaluate_run(Run(tmp_path / "run"), checkpoint="ensemble")
    assert found.accuracy == result["ensemble"]["accuracy"]


# More steps in a test than in training


def test_validation_and_test_may_take_more_steps(experiment, tmp_path) -> None:
    # The user requested more steps than in training, so there is no warning.
    result = train_run(Run.new(tmp_path / "run", experiment(inner={"num_test_steps": 4})))
    assert result["test"]["num_steps"] == 4
    assert result["ensemble"]["num_steps"] == 4
    found = evaluate_run(Run(tmp_path / "run"))
    assert found.num_steps == 4
    assert found.accuracy == result["test"]["accuracy"]
    found = evaluate_run(Run(tmp_path / "run"), num_steps=2)
    assert found.num_steps == 2


# Other sources


def test_a_run_is_tested_on_another_source(experiment, tmp_path, monkeypatch) -> None:
    train_run(Run.new(tmp_path / "run", experiment(tasks={"weights": [2.0]})))
    run = Run.open(tmp_path / "run")
    overrides = run.dataset_overrides("strokes")
    found = evaluate_run(run, overrides=overrides, num_tasks=3)
    changed = run.with_overrides(overrides)
    assert changed.tasks.options["dataset"] == ["strokes"]
    assert "weights" not in changed.tasks.options
    assert found.num_tasks == 3


def test_fixed_tasks_can_judge_a_model_of_varied_ones(experiment, tmp_path) -> None:
    train_run(Run.new(tmp_path / "run", experiment()))
    run = Run(tmp_path / "run")
    signature = run.signature
    assert signature.varies
    content = {
        "tasks": {"name": "images", "dataset": "spots", "way": 4, "shot": 1, "num_query": 2},
        "model": {"name": "conv4", "filters": 4, "num_blocks": 2},
    }
    tasks = match_tasks(build_tasks(parse_experiment(content)), signature)
    learner = build_learner(run.experiment, signature)
    assert evaluate(learner, tasks, num_tasks=3).num_tasks == 3


# Faults


@pytest.mark.parametrize("init", [n for n in INITS if not INITS.get(n).variable_way])
def test_a_last_layer_of_one_size_is_refused(experiment, tmp_path, init) -> None:
    with pytest.raises(ConfigError, match=r"differ in their number of classes.*prototype-head"):
        train_run(Run.new(tmp_path / "run", experiment(init)))
    assert not (tmp_path / "run").exists()


def test_an_attenuated_head_is_not_refused(experiment) -> None:
    made = experiment("attenuated", base="prototype-head")
    learner = build_learner(made, build_tasks(made))
    assert learner.init.variable_way


@pytest.mark.parametrize("init", ["prototype-head", "zero-head"])
def test_regression_has_no_classes(init) -> None:
    content = {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp"}, "init": {"name": init}}
    made = parse_experiment(content)
    with pytest.raises(ConfigError, match="needs classes, but these tasks are regression"):
        build_learner(made, build_tasks(made))


def test_what_is_only_for_testing_is_refused_before_a_folder_is_made(
    experiment, tmp_path, monkeypatch
) -> None:
    images = np.zeros((5, 3, 8, 8), np.uint8)
    signs = ImageSet.of_arrays("signs", {"test": {f"c{n}": images for n in range(6)}})
    signs = replace(signs, source="md-traffic-sign")
    monkeypatch.setattr("alfa.data._varied.open_images", lambda name, size=None: signs)
    with pytest.raises(DataError, match="signs is for testing only"):
        train_run(Run.new(tmp_path / "run", experiment()))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "rule", [{"name": "alfa", "per_parameter_decay": True}, {"name": "meta-sgd"}]
)
def test_values_of_each_weight_are_refused_with_a_sentence(experiment, tmp_path, rule) -> None:
    made = experiment(rule="alfa")
    content = (made.rule.model_dump() if rule["name"] == "alfa" else {}) | rule
    made = made.model_copy(update={"rule": type(made.rule)(**content)})
    with pytest.raises(ConfigError, match="the last layer has no fixed parameters"):
        train_run(Run.new(tmp_path / "run", made))
    assert not (tmp_path / "run").exists()


# The outer loop


def test_the_rate_falls_and_weights_decay(experiment, tmp_path, monkeypatch) -> None:
    seen = []
    original = Adam.step

    def step(self, *args):
        seen.append([(g["lr"], g["weight_decay"], len(g["params"])) for g in self.param_groups])
        return original(self, *args)

    monkeypatch.setattr(Adam, "step", step)
    optimizer = {"name": "adam", "learning_rate": 0.01, "weight_decay": 0.1}
    schedule = {"name": "step", "gamma": 0.5, "every": 2}
    train_run(Run.new(tmp_path / "run", experiment(optimizer=optimizer, schedule=schedule)))
    rates = [0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025]
    assert [groups[0][0] for groups in seen] == pytest.approx(rates)
    assert [groups[1][0] for groups in seen] == pytest.approx(rates)
    (_, decay, decayed), (_, none, others) = seen[0]
    # Only the weights of the two convolutions decay.
    assert (decay, decayed, none) == (0.1, 2, 0.0)
    assert others > 4


def test_a_rate_that_falls_is_the_same_when_resumed(experiment, tmp_path) -> None:
    parts = {
        "optimizer": {"name": "adam", "weight_decay": 0.01},
        "schedule": {"name": "step", "gamma": 0.3, "every": 2},
    }
    whole = train_run(Run.new(tmp_path / "whole", experiment(**parts)))
    train_run(Run.new(tmp_path / "parts", experiment(**parts, outer={"num_iterations": 3})))
    resumed = train_run(Run.new(tmp_path / "parts", experiment(**parts)), resume=True)
    assert whole["test"] == resumed["test"]


def test_varied_tasks_can_be_made_without_a_store() -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 1, 8, 8), np.uint8)
    tasks = Varied(
        [ImageSet.of_arrays("some", {"train": {f"c{n}": images for n in range(3)}})],
        limits=Limits(min_way=2, max_way=3, max_query=1, max_support=6),
    )
    assert tasks.episode(0, num_tasks=1).num_tasks == 1
