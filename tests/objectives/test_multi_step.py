"""The weighted sum of the query losses of all inner steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.objectives import MultiStep, QueryLoss
from alfa.ops import mse


def published_weights(num_steps: int, epoch: int, num_epochs: int = 15) -> list[float]:
    """Return the weights that the published code describes, step by step."""
    start, rate, smallest = 1 / num_steps, 1 / num_steps / num_epochs, 0.03 / num_steps
    weights = [max(start - epoch * rate, smallest)] * (num_steps - 1)
    last = min(start + epoch * (num_steps - 1) * rate, 1 - (num_steps - 1) * smallest)
    return [*weights, last]


@pytest.mark.parametrize("num_steps", [1, 2, 5])
@pytest.mark.parametrize("iteration", [0, 1, 499, 500, 3_333, 7_000, 7_499])
def test_the_weights_are_the_published_ones(num_steps: int, iteration: int) -> None:
    # 100 epochs of 500 iterations, 15 of them annealed
    found = MultiStep().weights(num_steps, iteration / 50_000)
    assert found == pytest.approx(published_weights(num_steps, iteration // 500), abs=1e-12)
    assert sum(found) == pytest.approx(1)


def test_every_epoch_has_other_weights() -> None:
    objective = MultiStep(annealed_until=0.5)
    firsts = [objective.weights(5, iteration / 50_000)[0] for iteration in range(0, 25_000, 500)]
    assert len(set(firsts)) == 50
    assert firsts == sorted(firsts, reverse=True)
    assert firsts[-1] == pytest.approx(0.03 / 5)
    # The fraction 0.29 * 100 rounds below 29.
    assert objective.weights(5, 0.29) == objective.weights(5, 0.2901) != objective.weights(5, 0.28)


def plain_query_losses(model: nn.Linear, episode, task: int, *, graph: bool) -> list[torch.Tensor]:
    """Return the query losses after each of three steps, by plain autograd."""
    w, b = model.weight, model.bias
    losses = []
    for _ in range(3):
        error = episode.support_x[task] @ w.T + b - episode.support_y[task]
        gw, gb = torch.autograd.grad(error.square().mean(), [w, b], create_graph=graph)
        w, b = w - 0.01 * gw, b - 0.01 * gb
        error = episode.query_x[task] @ w.T + b - episode.query_y[task]
        losses.append(error.square().mean())
    return losses


@pytest.mark.parametrize(
    ("progress", "weights", "graph"),
    [
        (0.1, [1 / 3, 1 / 3, 1 / 3], False),
        (0.3, [1 / 6, 1 / 6, 2 / 3], True),
        (0.5, [0, 0, 1], True),
    ],
)
def test_loss_and_gradient_are_those_of_plain_autograd(
    make_learner, make_episode, perturb, progress, weights, graph
) -> None:
    model = perturb(nn.Linear(2, 2))
    learner, episode = make_learner(model), make_episode(num_tasks=3)
    objective = MultiStep(annealed_until=0.5, first_order_until=0.2, num_epochs=4)
    outcome = objective(learner, episode, progress=progress)
    found = torch.autograd.grad(outcome.losses.sum(), [model.weight, model.bias])
    plain = [plain_query_losses(model, episode, task, graph=graph) for task in range(3)]
    sums = [sum(w * loss for w, loss in zip(weights, losses, strict=True)) for losses in plain]
    torch.testing.assert_close(outcome.losses, torch.stack(sums))
    torch.testing.assert_close(outcome.query_losses, torch.stack([losses[-1] for losses in plain]))
    expected = torch.autograd.grad(sum(sums), [model.weight, model.bias])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_without_its_parts_it_is_maml(make_learner, make_mlp, make_episode, progress) -> None:
    learner, episode = make_learner(make_mlp()), make_episode()
    objective = MultiStep(annealed_until=0.0)
    assert not objective.uses_progress
    assert MultiStep().uses_progress
    assert MultiStep(annealed_until=0.0, first_order_until=0.5).uses_progress
    results = []
    for one in (objective, QueryLoss()):
        losses = one(learner, episode, progress=progress).losses
        results.append((losses, *torch.autograd.grad(losses.sum(), list(learner.parameters()))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("order", ["first", "second"])
def test_the_order_is_first_until_then_and_the_learners_after(
    make_learner, make_mlp, make_episode, order
) -> None:
    learner, episode = make_learner(make_mlp(), order=order), make_episode()
    parameters = list(learner.parameters())

    def gradients(objective, progress):
        losses = objective(learner, episode, progress=progress).losses
        return torch.cat([g.flatten() for g in torch.autograd.grad(losses.sum(), parameters)])

    annealed = MultiStep(annealed_until=0.0, first_order_until=0.5)
    before, after = gradients(annealed, 0.49), gradients(annealed, 0.5)
    assert torch.equal(after, gradients(QueryLoss(), 0.5))
    learner.order = "first"
    assert torch.equal(before, gradients(QueryLoss(), 0.0))
    assert torch.equal(before, after) == (order == "first")


def test_without_inner_steps_it_is_the_query_loss(make_learner, make_mlp, make_episode) -> None:
    learner, episode = make_learner(make_mlp(), num_steps=0), make_episode()
    outcome = MultiStep()(learner, episode, progress=0.0)
    assert torch.equal(
        outcome.losses,
        mse(
            learner.adapt(episode.support_x, episode.support_y).predict(episode.query_x),
            episode.query_y,
        ),
    )


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"annealed_until": 1.5}, "`annealed_until` must be from 0 to 1, got 1.5"),
        ({"smallest_weight": -1.0}, "`smallest_weight` must be from 0 to 1, got -1.0"),
        ({"first_order_until": 2}, "`first_order_until` must be from 0 to 1, got 2"),
        ({"num_epochs": 0}, "`num_epochs` must be at least 1, got 0"),
    ],
)
def test_invalid_options_are_errors(options, fault) -> None:
    with pytest.raises(ConfigError, match=fault):
        MultiStep(**options)
