"""Evaluation: means, intervals, and tasks."""

from __future__ import annotations

import dataclasses
import importlib
import math
import statistics
import warnings

import pytest
import torch

from alfa.build._build import build_learner, build_tasks
from alfa.data import Sinusoids
from alfa.errors import AlfaWarning, DivergedError
from alfa.evaluation import evaluate
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.ops import accuracy, cross_entropy, mse
from alfa.rules import SGD


@pytest.fixture
def learner_and_tasks(tiny):
    experiment = tiny()
    tasks = build_tasks(experiment)
    return build_learner(experiment, tasks), tasks


@pytest.fixture
def set_stack(monkeypatch: pytest.MonkeyPatch):
    """Set the number of tasks that are adapted at once."""
    # The package has a function of the same name as this module.
    module = importlib.import_module("alfa.evaluation._evaluate")
    return lambda size: monkeypatch.setattr(module, "_MOST_TASKS", size)


def test_mean_and_interval_are_those_of_the_tasks_losses(learner_and_tasks) -> None:
    learner, tasks = learner_and_tasks
    episode = tasks.episode(0, num_tasks=7, split="test", seed=3)
    losses = learner(episode, order="none").query_losses.tolist()
    found = evaluate(learner, tasks, num_tasks=7, seed=3)
    assert found.loss == pytest.approx(statistics.mean(losses), rel=1e-6)
    assert found.interval == pytest.approx(1.96 * statistics.stdev(losses) / math.sqrt(7), rel=1e-6)


@pytest.mark.parametrize("places", [(), (2,), (3,), (2, 2)], ids=str)
def test_an_accuracy_is_over_all_places_of_an_example(places) -> None:
    module = importlib.import_module("alfa.evaluation._evaluate")
    targets = torch.arange(2 * 4 * math.prod(places)).remainder(3).view(2, 4, *places)
    outputs = torch.nn.functional.one_hot(targets, 3).double()
    # One place of the second task's first example is wrong.
    wrong = outputs[1, 0].view(-1, 3)[0]
    wrong.copy_(wrong.roll(1))
    stack = module._Stack((0, 1), outputs, targets)
    found = module._scores([stack], cross_entropy, accuracy, num_models=1)[:, 1]
    assert found.tolist() == pytest.approx([1, 1 - 1 / (4 * math.prod(places))])


def test_the_evaluation_says_what_it_was(learner_and_tasks) -> None:
    found = evaluate(*learner_and_tasks, num_tasks=3, num_steps=2, split="val", seed=4).as_dict()
    settings = {key: found[key] for key in ("num_tasks", "num_steps", "split", "seed")}
    assert settings == {"num_tasks": 3, "num_steps": 2, "split": "val", "seed": 4}


def test_same_seed_gives_same_figures_and_others_differ(learner_and_tasks) -> None:
    first = evaluate(*learner_and_tasks, num_tasks=5, seed=1)
    assert evaluate(*learner_and_tasks, num_tasks=5, seed=1) == first
    assert evaluate(*learner_and_tasks, num_tasks=5, seed=2).loss != first.loss
    assert evaluate(*learner_and_tasks, num_tasks=5, seed=1, split="val").loss != first.loss


@pytest.mark.parametrize("stack", [1, 3, 7, 50])
def test_stacking_does_not_change_the_figures(learner_and_tasks, set_stack, stack: int) -> None:
    whole = evaluate(*learner_and_tasks, num_tasks=7)
    set_stack(stack)
    stacked = evaluate(*learner_and_tasks, num_tasks=7)
    assert stacked.loss == pytest.approx(whole.loss, rel=1e-5)
    assert stacked.interval == pytest.approx(whole.interval, rel=1e-5)
    assert stacked.num_tasks == 7


def test_evaluation_leaves_the_learner_untouched(learner_and_tasks) -> None:
    learner, tasks = learner_and_tasks
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    evaluate(learner, tasks, num_tasks=3)
    assert all(torch.equal(value, before[key]) for key, value in learner.state_dict().items())
    assert all(parameter.grad is None for parameter in learner.parameters())


def test_more_steps_than_in_training_warns_once(learner_and_tasks, set_stack) -> None:
    set_stack(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        found = evaluate(*learner_and_tasks, num_tasks=6, num_steps=8)
    assert found.num_steps == 8
    assert [warning.category for warning in caught] == [AlfaWarning]
    assert "inner step 6 is beyond the 5 steps" in str(caught[0].message)


def test_as_many_steps_as_in_training_do_not_warn(learner_and_tasks) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(*learner_and_tasks, num_tasks=2).num_steps == 5


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch):
    """Record the number of tasks of each adaptation."""
    sizes: list[int] = []
    real = Learner.forward

    def forward(self, episode, **options):
        sizes.append(episode.num_tasks)
        return real(self, episode, **options)

    monkeypatch.setattr(Learner, "forward", forward)
    return sizes


def test_small_tasks_are_adapted_a_hundred_at_once(tiny, stacks) -> None:
    experiment = tiny("model.hidden=[40, 40]", "tasks.num_query=100")
    tasks = build_tasks(experiment)
    evaluate(build_learner(experiment, tasks), tasks, num_tasks=202)
    assert stacks == [1, 1, 100, 100]


class _Wide(torch.nn.Module):
    """Expands every point to a million values (4 MB)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x):
        return self.linear(x).expand(-1, 10**6).tanh().mean(1, keepdim=True)


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_tasks_that_take_much_memory_are_few_at_once(stacks, over_tasks: str) -> None:
    model = _Wide()
    init = LearnedInit(model)
    learner = Learner(
        model, init=init, rule=SGD(init.layers), loss=mse, num_steps=1, over_tasks=over_tasks
    )
    evaluate(learner, Sinusoids(num_support=3, num_query=5), num_tasks=30)
    # The query set of one task needs at least 20 MB.
    assert stacks[:2] == [1, 1]
    assert 2 <= max(stacks) <= 2**29 // 20_000_000


def test_how_many_tasks_are_adapted_at_once_is_always_the_same(tiny, stacks, monkeypatch) -> None:
    monkeypatch.setattr(
        importlib.import_module("alfa.evaluation._evaluate"), "_MOST_BYTES", 500_000
    )
    for _ in range(2):
        experiment = tiny("model.hidden=[40, 40]")
        tasks = build_tasks(experiment)
        evaluate(build_learner(experiment, tasks), tasks, num_tasks=100)
    first, second = stacks[: len(stacks) // 2], stacks[len(stacks) // 2 :]
    assert first == second
    assert 1 < max(first) < 98


class _OneBadTask(Sinusoids):
    """Sine curves, one of which has a NaN as a support target."""

    bad = 3

    def episode(self, first, *, num_tasks, split="train", seed=0):
        episode = super().episode(first, num_tasks=num_tasks, split=split, seed=seed)
        support_y = episode.support_y.clone()
        if first <= self.bad < first + num_tasks:
            support_y[self.bad - first] = math.nan
        return dataclasses.replace(episode, support_y=support_y)


@pytest.mark.parametrize("stack", [2, 100])
def test_a_task_that_is_not_finite_is_named(learner_and_tasks, set_stack, stack: int) -> None:
    set_stack(stack)
    learner, _ = learner_and_tasks
    with pytest.raises(DivergedError, match=r"step 1 of task 3 is nan .* val tasks.* rule alfa"):
        evaluate(learner, _OneBadTask(num_query=10), num_tasks=6, split="val")


def test_an_exploding_adaptation_names_task_and_step(tiny) -> None:
    experiment = tiny("rule.learning_rate=1e30", method="maml")
    tasks = build_tasks(experiment)
    with pytest.raises(DivergedError, match=r"at step \d of task 0 is (inf|nan)"):
        evaluate(build_learner(experiment, tasks), tasks, num_tasks=2)


class _Own(torch.nn.Module):
    """A model with functional dropout in training mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.a, self.b, self.p = torch.nn.Linear(1, 8), torch.nn.Linear(8, 1), p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.nn.functional.dropout(self.a(x).relu(), self.p, self.training))


def _learner_of(model: torch.nn.Module) -> Learner:
    init = LearnedInit(model)
    return Learner(model, init=init, rule=SGD(init.layers), loss=mse, num_steps=2)


def test_dropout_by_a_function_is_off() -> None:
    dropping, other = _Own(0.5), _Own(0.0)
    other.load_state_dict(dropping.state_dict())
    found = [evaluate(_learner_of(m), Sinusoids(), num_tasks=4).loss for m in (dropping, other)]
    assert found[0] == found[1]
    assert all(part.training for part in dropping.modules())


def test_batch_norm_by_running_statistics_is_not_transductive() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    )
    learner = _learner_of(model)
    assert evaluate(learner, Sinusoids(), num_tasks=2).batch_norm == "transductive"
    learner.eval()
    assert evaluate(learner, Sinusoids(), num_tasks=2).batch_norm == "transductive"
    model.eval()
    assert evaluate(learner, Sinusoids(), num_tasks=2).batch_norm is None
