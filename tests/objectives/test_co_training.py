"""TADAM's objective: the query loss, and at times the classification of all classes."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.build import build_tasks, trainer_options
from alfa.config import parse_experiment
from alfa.errors import ConfigError
from alfa.inits import PrototypeHead
from alfa.learner import Learner
from alfa.objectives import CoTraining
from alfa.ops import cross_entropy
from alfa.rules import SGD
from alfa.runs import Run
from alfa.types import Episode


@pytest.fixture
def learner(perturb):
    model = perturb(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    init = PrototypeHead(model)
    return Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)


@pytest.fixture
def episode(randn):
    y = torch.arange(4).expand(2, -1) % 2
    classes = torch.tensor([[3, 0], [1, 4]])
    return Episode(randn(2, 4, 3), y, randn(2, 4, 3), y, classes)


def test_the_probability_falls_in_stages() -> None:
    objective = CoTraining(num_features=2, num_classes=3)
    found = [objective.probability(t / 100) for t in (0, 4, 5, 9, 10, 99)]
    assert found == pytest.approx([1, 1, 0.9, 0.9, 0.81, 0.9**19])


def test_it_adds_a_plain_classification(learner, episode, perturb) -> None:
    objective = perturb(CoTraining(num_features=4, num_classes=5), 1.0)
    outcome = objective(learner, episode, progress=0.0)
    for task in range(2):
        x = torch.cat([episode.support_x[task], episode.query_x[task]])
        y = torch.tensor([[3, 0], [1, 4]][task])[torch.arange(8) % 2]
        logits = learner.model[:2](x) @ objective.weight.T + objective.bias
        expected = outcome.query_losses[task] + F.cross_entropy(logits, y)
        torch.testing.assert_close(outcome.losses[task], expected)


def test_draws_have_the_probability_and_repeat(learner, episode) -> None:
    objective = CoTraining(num_features=4, num_classes=5, decay=0.5, num_stages=2).double()
    progress = [0.5 + i / 1000 for i in range(300)]

    def drawn():
        return [objective(learner, episode, progress=p).objective is not None for p in progress]

    first = drawn()
    assert first == drawn()
    assert 110 < sum(first) < 190


def test_tasks_must_know_their_classes(learner, episode) -> None:
    unknown = dataclasses.replace(episode, classes=None)
    with pytest.raises(ConfigError, match="'co-training' needs tasks that know the classes"):
        CoTraining(num_features=4, num_classes=5).double()(learner, unknown, progress=0.0)
    with pytest.raises(ConfigError, match="`decay` must be above 0 and at most 1, got 2"):
        CoTraining(num_features=4, num_classes=5, decay=2)


def experiment(tasks: dict):
    return parse_experiment(
        {
            "tasks": tasks,
            "model": {"name": "conv4", "filters": 4, "num_blocks": 2},
            "init": {"name": "prototype-head"},
            "objective": {"name": "co-training"},
        }
    )


def test_the_builder_supplies_the_sizes(spots, tmp_path) -> None:
    made = experiment({"name": "images", "dataset": "spots", "way": 3, "shot": 2, "num_query": 3})
    learner, _, options = Run.new(tmp_path / "run", made).build("cpu")
    assert build_tasks(made).num_train_classes == 6
    assert options["objective"].weight.shape == (6, learner.model.linear.in_features)
    trained = {id(p) for group in options["optimizer"].param_groups for p in group["params"]}
    assert id(options["objective"].weight) in trained


def test_tasks_of_several_sources_have_no_common_classes(spots) -> None:
    varied = {"name": "meta-dataset", "dataset": ["spots"], "size": 8, "min_way": 2, "max_way": 3}
    made = experiment({**varied, "max_support": 8})
    tasks = build_tasks(made)
    from alfa.build import build_learner

    with pytest.raises(ConfigError, match="needs tasks with common training classes"):
        trainer_options(made, build_learner(made, tasks), tasks)
