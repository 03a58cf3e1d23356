"""Conv4 equals plain torch, with hand-written derivatives and with autograd."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import Attenuated, FixedInit, LearnedInit
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.ops import cross_entropy, per_task
from alfa.rules import ALFA, SGD, LearnedRates
from alfa.types import Episode


class Plain(nn.Module):
    """The same network in ordinary operations, with the same parameter names."""

    def __init__(self, like: Conv4) -> None:
        super().__init__()
        for name, module in like.named_children():
            self.add_module(name, module)
        self.num_blocks, self.num_pools = like.num_blocks, like.num_pools

    def forward(self, x: Tensor) -> Tensor:
        for block in range(1, self.num_blocks + 1):
            x = self.get_submodule(f"conv{block}")(x)
            norm = self.get_submodule(f"norm{block}")
            x = F.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
            x = F.leaky_relu(x, 0.01)
            x = F.max_pool2d(x, 2) if block <= self.num_pools else x
        return self.linear(x.flatten(1))


def make(
    shape=(2, 21, 16), filters=3, num_blocks=3, ways=3, num_tasks=2, **options
) -> tuple[Conv4, Episode]:
    options |= {"generator": (generator := torch.Generator().manual_seed(0))}
    model = Conv4(shape, ways, filters=filters, num_blocks=num_blocks, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
        model.norm1.weight[0] = -0.7
    x = torch.randn((num_tasks, 4 * ways, *shape), generator=generator, dtype=torch.float64)
    y = torch.arange(ways).repeat(4).expand(num_tasks, -1)
    return model, Episode(x[:, : 2 * ways], y[:, : 2 * ways], x[:, 2 * ways :], y[:, 2 * ways :])


RULES = {
    "sgd": lambda layers: SGD(layers, learning_rate=0.1),
    "learned": lambda layers: LearnedRates(layers, num_steps=3),
    "alfa": lambda layers: ALFA(
        layers,
        num_steps=3,
        state_gradient="full",
        generator=torch.Generator().manual_seed(1),
    ),
}
INITS = {
    "learned": LearnedInit,
    "fixed": FixedInit,
    "attenuated": lambda model, **options: Attenuated(
        LearnedInit(model, **options), generator=torch.Generator().manual_seed(2)
    ).double(),
}


def meta_gradients(
    model, episode, rule="alfa", init="learned", *, adapt=None, **options
) -> list[Tensor]:
    start = INITS[init](model, adapt=adapt)
    made = RULES[rule](start.layers).double()
    options = {"loss": cross_entropy, "num_steps": 3, **options}
    learner = Learner(model, init=start, rule=made, **options)
    outcome = learner(episode)
    parameters = list(learner.meta_parameters())
    loss_value = outcome.query_losses.mean()
    grads: tuple[Tensor, ...] = ()
    if parameters:
        grads = torch.autograd.grad(
            loss_value, parameters, allow_unused=True, materialize_grads=True
        )
    return [loss_value, outcome.outputs, outcome.adapted.support_losses, *grads]


def assert_equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@functools.cache
def of_plain_torch(rule: str, init: str, order: str) -> list[Tensor]:
    model, episode = make()
    return meta_gradients(Plain(model), episode, rule, init, order=order)


def test_the_forward_pass_equals_plain_torch() -> None:
    model, episode = make()
    ours, theirs = model(episode.query_x[0]), Plain(model)(episode.query_x[0])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
@pytest.mark.parametrize("order", ["second", "first"])
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("rule", RULES)
def test_meta_gradients_equal_plain_torch(rule, init, order, over_tasks) -> None:
    model, episode = make()
    ours = meta_gradients(model, episode, rule, init, order=order, over_tasks=over_tasks)
    assert_equal(ours, of_plain_torch(rule, init, order))


@pytest.mark.parametrize(
    ("rule", "init", "over_tasks"),
    [("sgd", "attenuated", "loop"), ("alfa", "learned", "stack"), ("alfa", "fixed", "loop")],
)
def test_recomputing_gives_the_same_numbers(rule, init, over_tasks) -> None:
    model, episode = make()
    ours = meta_gradients(model, episode, rule, init, over_tasks=over_tasks, memory="recompute")
    assert_equal(ours, of_plain_torch(rule, init, "second"))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 11), (1, 15, 10)], ids=str)
def test_any_image_size_equals_plain_torch(shape) -> None:
    model, episode = make(shape, filters=2)
    assert_equal(meta_gradients(model, episode), meta_gradients(Plain(model), episode))


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_growing_filters_equal_plain_torch(over_tasks) -> None:
    model, episode = make(filters=[2, 3, 5])
    ours = meta_gradients(model, episode, over_tasks=over_tasks)
    assert_equal(ours, meta_gradients(Plain(model), episode))


def test_filters_are_one_number_or_one_for_each_block() -> None:
    model = Conv4((3, 84, 84), 5, filters=[64, 96, 128, 256])
    assert model.feature_shape == (256, 5, 5)
    shapes = [model.get_parameter(f"conv{block}.weight").shape[:2] for block in (1, 2, 3, 4)]
    assert shapes == [(64, 3), (96, 64), (128, 96), (256, 128)]
    one, each = (
        Conv4((1, 16, 16), 2, filters=filters, generator=torch.Generator().manual_seed(3))
        for filters in (4, [4, 4, 4, 4])
    )
    assert all(map(torch.equal, one.parameters(), each.parameters()))


def test_blocks_without_pooling_equal_plain_torch() -> None:
    model, episode = make((2, 9, 8), filters=2, num_pools=1)
    assert model.feature_shape == (2, 4, 4)
    assert_equal(meta_gradients(model, episode), meta_gradients(Plain(model), episode))


@pytest.mark.parametrize("num_pools", [0, 5])
def test_invalid_numbers_of_pools_are_rejected(num_pools) -> None:
    with pytest.raises(ConfigError, match=r"`num_pools` must be from 1 to `num_blocks` \(4\), got"):
        Conv4((3, 16, 16), 5, num_pools=num_pools)


@pytest.mark.parametrize("filters", [0, [4, 4, 4], [4, 4, 4, 0], []], ids=str)
def test_invalid_filters_are_rejected(filters) -> None:
    with pytest.raises(ConfigError, match="`filters` must be a number of at least 1, or one for"):
        Conv4((3, 16, 16), 5, filters=filters)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(4, 13), st.integers(4, 13)),
    filters=st.integers(1, 4),
    num_tasks=st.integers(1, 3),
    over_tasks=st.sampled_from(["loop", "stack"]),
    memory=st.sampled_from(["store", "recompute"]),
)
def test_random_tasks_equal_plain_torch(shape, filters, num_tasks, over_tasks, memory) -> None:
    model, episode = make(shape, filters, num_blocks=2, num_tasks=num_tasks)
    ours = meta_gradients(model, episode, over_tasks=over_tasks, memory=memory)
    assert_equal(ours, meta_gradients(Plain(model), episode))


# User-defined losses


WEIGHTS = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.huber_loss(outputs, F.one_hot(targets, 3).to(outputs.dtype), delta=0.5)


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, weight=WEIGHTS)


@pytest.mark.parametrize("rule", ["sgd", "alfa"])
@pytest.mark.parametrize("loss", [huber, weighted])
def test_user_defined_losses_equal_plain_torch(loss, rule) -> None:
    model, episode = make((2, 9, 8), num_blocks=2)
    ours = meta_gradients(model, episode, rule, loss=per_task(loss))
    assert_equal(ours, meta_gradients(Plain(model), episode, rule, loss=per_task(loss)))


def test_autograd_equals_the_hand_written_gradients() -> None:
    model, episode = make()
    ours = meta_gradients(model, episode)
    assert_equal(ours, meta_gradients(model, episode, loss=per_task(F.cross_entropy)))


class Tempered(nn.Module):
    """Cross-entropy with a trained temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.factor * outputs, targets)


def by_hand(model: nn.Module, episode: Episode, loss, *, learned: bool) -> Tensor:
    """Return the query loss after three steps of gradient descent, task by task."""
    adapted = list(LearnedInit(model).layers)
    losses = []
    for task in range(episode.num_tasks):
        params = {n: p if learned else p.detach() for n, p in model.named_parameters()}
        params |= {name: params[name].clone() for name in adapted}
        for _ in range(3):
            own = [params[name].requires_grad_() for name in adapted]
            outputs = functional_call(model, params, (episode.support_x[task],))
            support_loss = loss(outputs[None], episode.support_y[task][None]).sum()
            grads = torch.autograd.grad(support_loss, own, create_graph=True)
            steps = zip(adapted, own, grads, strict=True)
            params |= {name: value - 0.1 * grad for name, value, grad in steps}
        outputs = functional_call(model, params, (episode.query_x[task],))
        losses.append(loss(outputs[None], episode.query_y[task][None]))
    return torch.cat(losses).mean()


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("init", ["learned", "fixed"])
@pytest.mark.parametrize("compiled", [True, False], ids=["conv4", "plain"])
def test_a_trained_loss_gets_its_gradient(compiled, init, memory) -> None:
    model, episode = make((2, 9, 8), num_blocks=2)
    plain, loss = Plain(model), Tempered()
    start = INITS[init](model if compiled else plain)
    learner = Learner(
        start.model,
        init=start,
        rule=SGD(start.layers, learning_rate=0.1),
        loss=loss,
        num_steps=3,
        memory=memory,
    )
    ours = learner(episode).query_losses.mean()
    theirs = by_hand(plain, episode, loss, learned=init == "learned")
    trained = list(learner.meta_parameters())
    assert trained[-1] is next(loss.parameters())
    options = {"allow_unused": True, "materialize_grads": True}
    assert_equal(
        [ours, *torch.autograd.grad(ours, trained, **options)],
        [theirs, *torch.autograd.grad(theirs, trained, **options)],
    )


# Choice of the adapted layers


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("adapt", ["linear.*", "norm*", "conv2.*", "*"])
def test_any_choice_of_layers_adapts_like_plain_torch(adapt, init) -> None:
    model, episode = make((2, 9, 8), num_blocks=2)
    ours = meta_gradients(model, episode, init=init, adapt=adapt)
    assert_equal(ours, meta_gradients(Plain(model), episode, init=init, adapt=adapt))


def test_ten_layers_are_adapted() -> None:
    init = LearnedInit(Conv4((3, 84, 84), 5))
    assert len(init.layers) == 10
    assert init.layers["linear.weight"] == (5, 1200)
    assert set(init.shared()) == {
        f"norm{block}.{part}" for block in (1, 2, 3, 4) for part in ("weight", "bias")
    }


# Training


def losses_of_training(model: nn.Module) -> Tensor:
    init = LearnedInit(model)
    rule = ALFA(init.layers, num_steps=2, generator=torch.Generator().manual_seed(1)).double()
    learner = Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=2)
    optimizer = torch.optim.Adam(learner.meta_parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(3).repeat(8).expand(2, -1)
    losses = []
    for _ in range(20):
        draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        classes = draw(2, 3, 1, 8, 8).repeat(1, 8, 1, 1, 1)
        x = classes + 0.3 * draw(classes.shape)
        loss = learner(Episode(x[:, :12], y[:, :12], x[:, 12:], y[:, 12:])).query_losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def test_training_follows_the_curve_of_plain_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    model = Conv4((1, 8, 8), 3, filters=4, num_blocks=2, generator=generator).double()
    twin = Plain(copy.deepcopy(model))
    ours, theirs = losses_of_training(model), losses_of_training(twin)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)
    assert ours[-5:].mean() < 0.9 * ours[:5].mean()


def test_too_small_images_are_rejected() -> None:
    with pytest.raises(
        ConfigError, match="images of 12 x 28 are too small for a Conv4 with 4 max pools"
    ):
        Conv4((1, 12, 28), 5)


def test_vectors_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"the shape of one input is \[1\], but this model takes"):
        Conv4((1,), 5)


@pytest.mark.parametrize("shape", [(6, 16, 16), (0, 3, 16, 16)], ids=str)
def test_a_batch_that_is_not_a_stack_of_images_is_rejected(shape) -> None:
    model = Conv4((3, 16, 16), 5)
    with pytest.raises(ConfigError, match=r"must be \[task, example, channel, height, width\]"):
        model(torch.zeros(shape))
