"""Memory modes give the same numbers, and recomputing saves less."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from alfa.errors import ConfigError
from alfa.inits import INITS, LearnedInit
from alfa.learner import Learner, adapt
from alfa.learner import _loop as loop
from alfa.learner._memory import RandomState
from alfa.models import Conv4
from alfa.ops import cross_entropy, mse
from alfa.rules import RULES, SGD
from alfa.types import Episode

# tests/inits/test_heads.py tests the inits that need classes.
ALL_INITS = [name for name in INITS if not INITS.get(name).classification_only]
ALL_RULES = list(RULES)
KINDS = ["mlp", "conv4", "module-loop", "module-stack"]
MODES = ["store", "recompute"]


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def images(randn):
    def make(shape=(1, 8, 8), num_examples=6, num_tasks=2):
        y = torch.arange(3).repeat(num_examples // 3).expand(num_tasks, -1)
        x = [randn(num_tasks, num_examples, *shape) for _ in range(2)]
        return Episode(x[0], y, x[1], y)

    return make


@pytest.fixture
def make_case(make_mlp, make_episode, make_learner, perturb, rng, images):
    """Return a function that creates a learner of a kind of model, and its tasks."""

    def make(kind, *, init="learned", rule="sgd", **options):
        if rule == "alfa":
            options["rule_options"] = {"state_gradient": "full"}
        if kind == "conv4":
            model = perturb(Conv4((1, 8, 8), 3, filters=2, num_blocks=2, generator=rng))
            options.setdefault("loss", cross_entropy)
            return make_learner(model, init=init, rule=rule, **options), images()
        model = make_mlp()
        if kind != "mlp":
            norm = nn.LayerNorm(4)
            model = perturb(nn.Sequential(nn.Linear(2, 4), norm, nn.Tanh(), nn.Linear(4, 2)), 0.3)
            options["over_tasks"] = kind.removeprefix("module-")
        return make_learner(model, init=init, rule=rule, **options), make_episode(num_tasks=3)

    return make


def figures(learner, episode, memory, *, also=(), **options):
    """Return losses, outputs, adapted parameters, and the gradients in all trained tensors."""
    learner.memory = memory
    outcome = learner(episode, **options)
    values = [outcome.query_losses, outcome.outputs, outcome.adapted.params.flat]
    values = [value.detach() for value in (*values, outcome.adapted.support_losses)]
    trained = [*learner.meta_parameters(), *also]
    if not trained:
        return values
    loss = outcome.query_losses.mean()
    return [*values, *torch.autograd.grad(loss, trained, materialize_grads=True)]


def assert_same(learner, episode, **options):
    stored, recomputed = (figures(learner, episode, mode, **options) for mode in MODES)
    assert len(stored) == len(recomputed)
    for one, other in zip(stored, recomputed, strict=True):
        close(other, one)


# The same numbers


@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("init", ALL_INITS)
@pytest.mark.parametrize("kind", KINDS)
def test_recomputing_gives_the_figures_of_storing(make_case, kind, init, rule):
    assert_same(*make_case(kind, init=init, rule=rule))


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
@pytest.mark.parametrize("kind", ["mlp", "conv4"])
def test_it_does_so_over_tasks_in_either_way(make_case, kind, over_tasks):
    assert_same(*make_case(kind, rule="alfa", over_tasks=over_tasks))


@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_does_so_in_first_order(make_case, kind, rule):
    assert_same(*make_case(kind, rule=rule), order="first")


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_so_where_no_gradient_is_wanted(make_case, kind):
    learner, episode = make_case(kind, rule="alfa")
    stored = learner(episode, order="none")
    learner.memory = "recompute"
    for outcome in (learner(episode, order="none"), _without_gradients(learner, episode)):
        close(outcome.query_losses, stored.query_losses)
        close(outcome.adapted.params.flat, stored.adapted.params.flat)
        assert not outcome.query_losses.requires_grad
        assert not outcome.adapted.params.flat.requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_recomputed_where_no_gradient_is_wanted(make_case, monkeypatch, kind):
    learner, episode = make_case(kind, rule="alfa")
    stored = learner(episode, order="none")
    learner.memory = "recompute"

    def refuse(*args, **options):
        raise AssertionError("computed again")

    for name in ("checkpoint", "recomputed"):
        monkeypatch.setattr(loop, name, refuse)
    outcome = learner(episode, order="none")
    assert torch.equal(outcome.outputs, stored.outputs)
    assert torch.equal(outcome.query_losses, stored.query_losses)
    assert not outcome.outputs.requires_grad


def _without_gradients(learner, episode):
    with torch.no_grad():
        return learner(episode)


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_so_without_any_step(make_case, kind):
    assert_same(*make_case(kind), num_steps=0)


def test_it_does_so_where_batch_norm_is_inductive(make_case):
    assert_same(*make_case("conv4", rule="alfa", batch_norm="inductive"))


def test_it_does_so_where_only_the_head_adapts(make_mlp, make_episode):
    model = make_mlp()
    init = LearnedInit(model, adapt="linear3.*")
    learner = Learner(model, init=init, rule=SGD(init.layers, learning_rate=0.1), loss=mse)
    assert_same(learner, make_episode())


@pytest.mark.parametrize("init", ["learned", "fixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_support_set_that_is_trained_gets_its_gradient(make_case, kind, init):
    learner, episode = make_case(kind, init=init)
    trained = episode.support_x.clone().requires_grad_()
    episode = replace(episode, support_x=trained)
    assert figures(learner, episode, "recompute", also=[trained])[-1].abs().max() > 1e-6
    assert_same(learner, episode, also=[trained])


def test_targets_that_are_trained_get_their_gradient(make_case):
    learner, episode = make_case("mlp")
    trained = episode.support_y.clone().requires_grad_()
    assert_same(learner, replace(episode, support_y=trained), also=[trained])


@pytest.mark.parametrize("memory", MODES)
def test_a_gradient_that_does_not_depend_on_the_weights_is_no_crash(randn, memory):
    model = nn.Linear(2, 1).double()
    init = LearnedInit(model)
    x, y = randn(2, 4, 2), randn(2, 4, 1)

    def linear(outputs, targets):
        return (outputs * targets).flatten(1).mean(1)

    rule = SGD(init.layers, learning_rate=0.1)
    learner = Learner(model, init=init, rule=rule, loss=linear, num_steps=2, memory=memory)
    (grad,) = torch.autograd.grad(learner(Episode(x, y, x, y)).query_losses.sum(), model.weight)
    close(grad, (x * y).mean(1).sum(0, keepdim=True))


# Random numbers


@pytest.fixture
def with_dropout(perturb):
    return perturb(
        nn.Sequential(
            nn.Linear(2, 40), nn.Dropout(0.5), nn.Tanh(), nn.Linear(40, 9), nn.Dropout(0.2)
        ),
        0.3,
    )


def seeded_figures(learner, episode, memory, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return figures(learner, episode, memory)


@pytest.mark.parametrize(("over_tasks", "num_tasks"), [("loop", 3), ("stack", 1)])
@pytest.mark.parametrize("rule", ALL_RULES)
def test_dropout_draws_the_same_numbers_again(
    make_learner, make_episode, with_dropout, rule, over_tasks, num_tasks
):
    learner = make_learner(with_dropout, rule=rule, over_tasks=over_tasks)
    episode = make_episode(num_tasks=num_tasks, num_out=9)
    stored = seeded_figures(learner, episode, "store", seed=1)
    for one, other in zip(
        stored, seeded_figures(learner, episode, "recompute", seed=1), strict=True
    ):
        close(other, one)
    another = seeded_figures(learner, episode, "recompute", seed=2)
    assert not torch.allclose(another[0], stored[0])


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_the_gradient_is_that_of_the_numbers_drawn(
    make_learner, make_episode, with_dropout, over_tasks
):
    learner = make_learner(with_dropout, over_tasks=over_tasks, rule_options={"learning_rate": 0.1})
    episode = make_episode(num_tasks=2, num_out=9)
    grads = seeded_figures(learner, episode, "recompute", seed=1)[4:]
    bias, grad = with_dropout[3].bias, grads[3]
    losses = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            bias[0] += step
        losses.append(seeded_figures(learner, episode, "recompute", seed=1)[0].mean())
    torch.testing.assert_close((losses[0] - losses[1]) / 2e-5, grad[0], rtol=1e-6, atol=1e-8)


def test_drawing_them_again_disturbs_nobody(make_learner, make_episode, with_dropout):
    learner = make_learner(with_dropout, memory="recompute")
    with torch.random.fork_rng():
        loss = learner(make_episode(num_out=9)).query_losses.sum()
        before = torch.get_rng_state()
        loss.backward()
        assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def mps(monkeypatch):
    """Simulate the random numbers of a device that this machine does not have."""
    states = {"now": torch.tensor([1])}
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states["now"].clone())
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state: states.update(now=state))
    return states


def test_numbers_drawn_on_mps_are_drawn_again(mps):
    random = RandomState(torch.device("mps"))
    mps["now"] = torch.tensor([2])
    with torch.random.fork_rng():
        torch.rand(1)
        outside = torch.get_rng_state()
        with random.restored():
            assert mps["now"] == 1
            assert not torch.equal(torch.get_rng_state(), outside)
            mps["now"] = torch.tensor([3])
        assert mps["now"] == 2
        assert torch.equal(torch.get_rng_state(), outside)


def test_numbers_of_other_devices_are_left_alone(mps):
    random = RandomState(torch.device("cpu"))
    mps["now"] = torch.tensor([2])
    with random.restored():
        assert mps["now"] == 2


# Saved memory


@dataclass(eq=False)
class Kept:
    """A tensor that autograd saves."""

    tensor: Tensor


def kept_bytes(learner, episode, memory, num_steps):
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(tensor):
        kept = Kept(tensor.detach())
        alive.add(kept)
        return kept

    learner.memory = memory
    with saved_tensors_hooks(pack, lambda kept: kept.tensor):
        outcome = learner(episode, num_steps=num_steps)
    storages = [kept.tensor.untyped_storage() for kept in alive]
    assert outcome.query_losses.requires_grad
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def kept_per_step(learner, episode, memory):
    few, many = (kept_bytes(learner, episode, memory, num_steps) for num_steps in (2, 4))
    return (many - few) / 2


def test_recomputing_keeps_little_of_a_network_of_convolutions(make_learner, perturb, images):
    model = perturb(Conv4((1, 16, 16), 3, filters=8, num_blocks=2))
    learner = make_learner(model, loss=cross_entropy)
    episode = images((1, 16, 16), num_examples=12)
    stored, recomputed = (kept_per_step(learner, episode, mode) for mode in MODES)
    assert 0 < recomputed < stored / 10


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_recomputing_keeps_little_of_any_module(make_learner, perturb, randn, over_tasks):
    model = perturb(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)))
    learner = make_learner(model, over_tasks=over_tasks)
    x, y = randn(2, 200, 2), randn(2, 200, 2)
    episode = Episode(x, y, x, y)
    stored, recomputed = (kept_per_step(learner, episode, mode) for mode in MODES)
    assert 0 < recomputed < stored / 10


def test_recomputing_keeps_little_of_the_query_pass(make_learner, perturb, images):
    model = perturb(Conv4((1, 16, 16), 3, filters=8, num_blocks=2))
    learner = make_learner(model, loss=cross_entropy)
    episode = images((1, 16, 16), num_examples=12)
    stored, recomputed = (kept_bytes(learner, episode, mode, num_steps=0) for mode in MODES)
    assert 0 < recomputed < stored / 5


# Mistakes


def test_a_misspelt_memory_gets_a_hint(make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    options = {"init": init, "rule": SGD(init.layers), "loss": mse, "memory": "recompte"}
    with pytest.raises(ConfigError, match=r"`memory` is 'recompte'.*Did you mean 'recompute'"):
        adapt(model, episode.support_x, episode.support_y, **options)
