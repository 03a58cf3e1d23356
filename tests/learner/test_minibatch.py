"""Minibatches in the inner loop."""

from __future__ import annotations

import pytest
import torch

from alfa.build import build_learner, build_tasks
from alfa.config import compose
from alfa.errors import ConfigError
from alfa.learner import Learner
from alfa.learner._minibatch import minibatch
from alfa.ops import mse


def chosen(num_steps: int, num_examples: int, batch_size: int) -> list[list[int]]:
    return [minibatch(step, num_examples, batch_size).tolist() for step in range(num_steps)]


@pytest.mark.parametrize(("num_examples", "batch_size"), [(12, 4), (7, 3), (5, 4), (9, 1)])
def test_steps_go_through_the_support_set_again_and_again(num_examples, batch_size) -> None:
    steps = chosen(2 * num_examples, num_examples, batch_size)
    assert all(len(step) == batch_size for step in steps)
    order = [number for step in steps for number in step]
    rounds = [order[i : i + num_examples] for i in range(0, len(order), num_examples)]
    assert all(sorted(one) == list(range(num_examples)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    assert steps == chosen(2 * num_examples, num_examples, batch_size)


@pytest.mark.parametrize("batch_size", [None, 4, 9])
def test_a_batch_of_all_examples_is_the_support_set(batch_size) -> None:
    assert minibatch(3, 4, batch_size) == slice(None)


def plain_losses(model, episode, task: int, num_steps: int) -> list[float]:
    """Return the losses of plain gradient descent with batches of 3."""
    state = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses = []
    for step in range(num_steps):
        state = {name: p.requires_grad_() for name, p in state.items()}
        batch = minibatch(step, 7, 3)
        outputs = torch.func.functional_call(model, state, (episode.support_x[task, batch],))
        loss = (outputs - episode.support_y[task, batch]).square().mean()
        grads = torch.autograd.grad(loss, list(state.values()))
        pairs = zip(state.items(), grads, strict=True)
        state = {name: (p - 0.01 * g).detach() for (name, p), g in pairs}
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("order", ["second", "none"])
@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_each_step_uses_its_examples(make_mlp, make_learner, make_episode, order, memory) -> None:
    model, episode = make_mlp(), make_episode(num_support=7)
    learner = make_learner(model, num_steps=5, batch_size=3, memory=memory)
    adapted = learner.adapt(episode.support_x, episode.support_y, order=order)
    expected = [plain_losses(model, episode, task, 5) for task in range(2)]
    found = adapted.support_losses.detach().T
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_the_memory_mode_does_not_change_the_gradient(make_mlp, make_learner, make_episode) -> None:
    model, episode = make_mlp(), make_episode(num_support=7)
    found = []
    for memory in ("store", "recompute"):
        learner: Learner = make_learner(model, num_steps=4, batch_size=3, memory=memory)
        loss = learner(episode).query_losses.sum()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_configuration_sets_the_size() -> None:
    experiment = compose("sinusoid", method="maml", overrides=["inner.batch_size=3"])
    assert build_learner(experiment, build_tasks(experiment)).batch_size == 3
    with pytest.raises(ConfigError, match=r"inner\.batch_size is 0"):
        compose("sinusoid", method="maml", overrides=["inner.batch_size=0"])


def test_an_empty_batch_is_an_error(make_mlp, make_learner) -> None:
    with pytest.raises(ConfigError, match="`batch_size` must be at least 1 or None, got 0"):
        make_learner(make_mlp(), loss=mse, batch_size=0)
