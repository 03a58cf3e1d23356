"""ANIL, BOIL, MAML++, Reptile, and iMAML: their recipes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.build import build_learner, build_tasks, trainer_options
from alfa.config import compose
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.objectives import QueryLoss
from alfa.types import Episode

SMALL = ["tasks.size=16", "tasks.way=3", "tasks.num_query=2", "model.filters=4"]
DOUBLE = "engine.dtype=float64"


def composed(name: str, *overrides: str):
    return compose("strokes", method=name, overrides=[*SMALL, DOUBLE, *overrides])


@pytest.fixture
def build():
    """Return a function that builds a method's learner and objective, and two tasks."""

    def make(name: str, *overrides: str):
        experiment = composed(name, *overrides)
        tasks = build_tasks(experiment)
        learner = build_learner(experiment, tasks)
        with torch.no_grad():
            # Initial biases are zero, which could hide a fault.
            for parameter in learner.model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        episode = tasks.episode(0, num_tasks=2).to(dtype=torch.float64)
        objective = trainer_options(experiment, learner, tasks)["objective"] or QueryLoss()
        return learner, objective, episode

    return make


@pytest.mark.parametrize(("name", "moves_head"), [("anil", True), ("boil", False)])
def test_frozen_layers_stay_but_get_outer_gradients(build, name, moves_head) -> None:
    learner, objective, episode = build(name)
    outcome = objective(learner, episode, progress=0.0)
    model = learner.model
    adapted = {**outcome.adapted.shared, **outcome.adapted.params}
    for key, p in model.named_parameters():
        is_norm, is_head = "norm" in key, key.startswith("linear.")
        update = adapted[key] - p
        # Batch norm cancels the bias of a convolution, so its gradient is zero.
        is_cancelled = "conv" in key and key.endswith("bias")
        assert bool(update.any()) == (not is_norm and is_head == moves_head and not is_cancelled)
    named = {k: p for k, p in model.named_parameters() if "conv" not in k or "weight" in k}
    grads = torch.autograd.grad(outcome.losses.sum(), list(named.values()))
    assert all(g.any() for g in grads), "every layer gets an outer gradient"


def plain_forward(p: dict[str, Tensor], x: Tensor) -> Tensor:
    for block in range(1, 5):
        x = F.conv2d(x, p[f"conv{block}.weight"], p.get(f"conv{block}.bias"), padding=1)
        x = F.batch_norm(x, None, None, p[f"norm{block}.weight"], p[f"norm{block}.bias"], True)
        x = F.max_pool2d(F.leaky_relu(x, 0.01), 2)
    return F.linear(x.flatten(1), p["linear.weight"], p["linear.bias"])


@pytest.mark.parametrize(("name", "rate", "num_steps"), [("anil", 0.01, 5), ("boil", 0.5, 1)])
def test_losses_and_gradients_are_those_of_plain_autograd(build, name, rate, num_steps) -> None:
    learner, objective, episode = build(name)
    outcome = objective(learner, episode, progress=0.0)
    theta = dict(learner.model.named_parameters())
    adapted = [k for k in theta if k.startswith("linear.") == (name == "anil") and "norm" not in k]
    wanted = []
    for task in range(2):
        phi = {key: theta[key] for key in adapted}
        for _ in range(num_steps):
            logits = plain_forward({**theta, **phi}, episode.support_x[task])
            loss = F.cross_entropy(logits, episode.support_y[task])
            grads = torch.autograd.grad(loss, list(phi.values()), create_graph=True)
            pairs = zip(phi.items(), grads, strict=True)
            phi = {key: p - rate * g for (key, p), g in pairs}
        logits = plain_forward({**theta, **phi}, episode.query_x[task])
        wanted.append(F.cross_entropy(logits, episode.query_y[task]))
    torch.testing.assert_close(outcome.losses, torch.stack(wanted))
    losses = outcome.losses.sum(), sum(wanted)
    found, expected = (
        torch.autograd.grad(loss, list(theta.values()), materialize_grads=True) for loss in losses
    )
    for key, one, other in zip(theta, found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9, msg=key)


def test_maml_plus_plus_begins_as_maml(build) -> None:
    """At its initial values, each part alone equals MAML's; the weights of the steps differ."""
    learner, objective, episode = build("maml++")
    init = LearnedInit(learner.model)
    plain, _, _ = build("maml")
    maml = Learner(learner.model, init=init, rule=plain.rule, loss=learner.loss, num_steps=5)
    support, query = (episode.support_x, episode.support_y), (episode.query_x, episode.query_y)
    every = [maml.loss(a.predict(query[0]), query[1]) for a in maml.steps(*support)][1:]
    # The learned rates start at 0.01 in single precision.
    start, last = (objective(learner, episode, progress=p) for p in (0.0, 0.15))
    torch.testing.assert_close(last.losses, every[-1], rtol=1e-7, atol=0)
    torch.testing.assert_close(start.losses, sum(every) / 5, rtol=1e-7, atol=0)
    assert learner.rule.alpha0.values.shape[0] == 5
    assert [p.shape[0] for p in learner.init.per_step[:2]] == [4, 4]
    assert len(learner.init.per_step) == 5 * 8


def outer_step(name: str, learner: Learner, objective, episode: Episode) -> None:
    """Take the first outer step of a recipe."""
    experiment = composed(name)
    options = trainer_options(experiment, learner, build_tasks(experiment))
    objective(learner, episode, progress=0.0).losses.mean().backward()
    options["optimizer"].step()


def test_the_first_outer_step_of_reptile_is_the_mean_of_the_adapted_weights(build) -> None:
    learner, objective, episode = build("reptile")
    # epsilon starts at 1
    x = torch.cat([episode.support_x, episode.query_x], 1)
    y = torch.cat([episode.support_y, episode.query_y], 1)
    means = {k: p.mean(0).detach() for k, p in learner.adapt(x, y).params.items()}
    outer_step("reptile", learner, objective, episode)
    assert set(means) == {name for name, _ in learner.model.named_parameters()}
    for key, p in learner.model.named_parameters():
        torch.testing.assert_close(p.detach(), means[key])


@pytest.mark.parametrize("name", ["maml++", "reptile", "imaml", "anil", "boil"])
def test_every_outer_step_changes_every_meta_parameter(build, name) -> None:
    learner, objective, episode = build(name)
    trained = [p for p in learner.meta_parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trained]
    outer_step(name, learner, objective, episode)
    unused = {id(p) for k, p in learner.model.named_parameters() if "conv" in k and "bias" in k}
    for p, earlier in zip(trained, before, strict=True):
        assert bool((p != earlier).any()) or id(p) in unused or p.numel() == 0
