"""ResNet12 equals plain torch, with hand-written derivatives and with autograd."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import Attenuated, FixedInit, LearnedInit
from alfa.learner import Learner
from alfa.models import ResNet12
from alfa.ops import cross_entropy, per_task
from alfa.rules import ALFA, SGD, LearnedRates
from alfa.types import Episode

FILTERS = [3, 4, 5, 6]
PARTS = ("1", "2", "3", "_shortcut")


class Plain(nn.Module):
    """The same network in ordinary operations, with the same parameter names."""

    def __init__(self, like: ResNet12, pooling: str = "four") -> None:
        super().__init__()
        for name, module in like.named_children():
            self.add_module(name, module)
        self.pooling = pooling

    def forward(self, x: Tensor) -> Tensor:
        for number in range(1, 5):
            block = self.get_submodule(f"block{number}")

            def normed(part: str, x: Tensor, block: nn.Module = block) -> Tensor:
                norm = block.get_submodule(f"norm{part}")
                z = block.get_submodule(f"conv{part}")(x)
                return F.batch_norm(z, None, None, norm.weight, norm.bias, training=True)

            main = normed("3", F.relu(normed("2", F.relu(normed("1", x)))))
            x = F.relu(main + normed("_shortcut", x))
            if self.pooling == "four":
                x = F.max_pool2d(x, 2)
            elif number < 4:
                x = F.max_pool2d(x, 2, padding=1 if number == 3 else 0)
        return self.linear(x.mean((2, 3)))


def make(shape=(2, 16, 17), ways=3, **options) -> tuple[ResNet12, Episode]:
    generator = torch.Generator().manual_seed(0)
    model = ResNet12(shape, ways, filters=FILTERS, generator=generator, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    x = torch.randn((2, 4 * ways, *shape), generator=generator, dtype=torch.float64)
    y = torch.arange(ways).repeat(4).expand(2, -1)
    return model, Episode(x[:, : 2 * ways], y[:, : 2 * ways], x[:, 2 * ways :], y[:, 2 * ways :])


RULES = {
    "sgd": lambda layers: SGD(layers, learning_rate=0.1),
    "learned": lambda layers: LearnedRates(layers, num_steps=2),
    "alfa": lambda layers: ALFA(
        layers,
        num_steps=2,
        state_gradient="full",
        generator=torch.Generator().manual_seed(1),
    ),
}
INITS = {
    "learned": LearnedInit,
    "fixed": FixedInit,
    "attenuated": lambda model: Attenuated(
        LearnedInit(model), generator=torch.Generator().manual_seed(2)
    ).double(),
}


class OnDevices(nn.Module):
    """A model that runs each part of the images separately, as on several devices."""

    def __init__(self, model: nn.Module, num_devices: int) -> None:
        super().__init__()
        self.model, self.num_devices = model, num_devices

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.model(part) for part in x.chunk(self.num_devices)])


def meta_gradients(model, episode, rule="alfa", init="learned", **options) -> list[Tensor]:
    start = INITS[init](model)
    made = RULES[rule](start.layers).double()
    options = {"loss": cross_entropy, "num_steps": 2, **options}
    learner = Learner(model, init=start, rule=made, **options)
    outcome = learner(episode)
    parameters = list(learner.meta_parameters())
    loss = outcome.query_losses.mean()
    grads: tuple[Tensor, ...] = ()
    if parameters:
        grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return [loss, outcome.outputs, outcome.adapted.support_losses, *grads]


def assert_equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@functools.cache
def of_plain_torch(rule: str, init: str, order: str) -> list[Tensor]:
    model, episode = make()
    return meta_gradients(Plain(model), episode, rule, init, order=order)


@pytest.mark.parametrize("pooling", ["four", "three"])
@pytest.mark.parametrize("size", [(16, 16), (18, 21)], ids=str)
def test_the_forward_pass_equals_plain_torch(pooling, size) -> None:
    model, episode = make((2, *size), pooling=pooling)
    ours, theirs = model(episode.query_x[0]), Plain(model, pooling)(episode.query_x[0])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


# Every rule from every init is tested with Conv4, which is smaller.
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
@pytest.mark.parametrize("order", ["second", "first"])
@pytest.mark.parametrize(
    ("rule", "init"), [("sgd", "attenuated"), ("learned", "fixed"), ("alfa", "learned")]
)
def test_meta_gradients_equal_plain_torch(rule, init, order, over_tasks) -> None:
    model, episode = make()
    ours = meta_gradients(model, episode, rule, init, order=order, over_tasks=over_tasks)
    assert_equal(ours, of_plain_torch(rule, init, order))


@pytest.mark.parametrize(
    ("size", "order", "over_tasks"),
    [((4, 4), "second", "loop"), ((9, 12), "second", "stack"), ((21, 16), "first", "stack")],
    ids=str,
)
def test_pooling_three_times_equals_plain_torch(size, order, over_tasks) -> None:
    model, episode = make((1, *size), pooling="three")
    ours = meta_gradients(model, episode, order=order, over_tasks=over_tasks)
    assert_equal(ours, meta_gradients(Plain(model, "three"), episode, order=order))


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 19, 21)], ids=str)
def test_any_image_size_equals_plain_torch(shape) -> None:
    model, episode = make(shape)
    ours = meta_gradients(model, episode)
    assert_equal(ours, meta_gradients(Plain(model), episode))


def test_the_two_poolings_are_different_networks() -> None:
    model, episode = make((2, 16, 16), pooling="three")
    other, _ = make((2, 16, 16), pooling="four")
    assert not torch.allclose(model(episode.query_x[0]), other(episode.query_x[0]))


def test_negative_gammas_equal_plain_torch() -> None:
    model, episode = make()
    with torch.no_grad():
        for number in range(1, 5):
            for part in PARTS:
                gamma = model.get_parameter(f"block{number}.norm{part}.weight")
                gamma.copy_(-gamma.abs() - 0.1)
    ours = meta_gradients(model, episode)
    assert_equal(ours, meta_gradients(Plain(model), episode))


def test_autograd_equals_the_hand_written_gradients() -> None:
    model, episode = make()
    ours = meta_gradients(model, episode)
    assert_equal(ours, meta_gradients(model, episode, loss=per_task(F.cross_entropy)))


def test_recomputing_gives_the_same_numbers() -> None:
    model, episode = make()
    ours = meta_gradients(model, episode, memory="recompute")
    assert_equal(ours, of_plain_torch("alfa", "learned", "second"))


def test_eighteen_layers_are_adapted() -> None:
    init = LearnedInit(ResNet12((3, 84, 84), 5))
    assert len(init.layers) == 18
    fan_in = 3
    for number, filters in enumerate((64, 128, 256, 512), start=1):
        block = f"block{number}"
        assert init.layers[f"{block}.conv1.weight"] == (filters, fan_in, 3, 3)
        assert init.layers[f"{block}.conv2.weight"] == (filters, filters, 3, 3)
        assert init.layers[f"{block}.conv3.weight"] == (filters, filters, 3, 3)
        assert init.layers[f"{block}.conv_shortcut.weight"] == (filters, fan_in, 1, 1)
        fan_in = filters
    assert init.layers["linear.weight"] == (5, 512)
    assert init.layers["linear.bias"] == (5,)


def test_gammas_and_betas_are_shared() -> None:
    model, _ = make()
    assert set(LearnedInit(model).shared()) == {
        f"block{number}.norm{part}.{which}"
        for number in (1, 2, 3, 4)
        for part in PARTS
        for which in ("weight", "bias")
    }


def test_the_same_generator_gives_the_same_weights() -> None:
    first, second = (
        ResNet12((1, 16, 16), 2, filters=FILTERS, generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    )
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("size", "pooling", "least"), [((15, 16), "four", 16), ((20, 3), "three", 4)]
)
def test_too_small_images_are_rejected(size, pooling, least) -> None:
    sentence = (
        f"images of {size[0]} x {size[1]} are too small for this ResNet12, which needs "
        f"{least} x {least}; use larger images"
    )
    with pytest.raises(ConfigError, match=sentence):
        ResNet12((3, *size), 5, filters=FILTERS, pooling=pooling)


@pytest.mark.parametrize("filters", [[3, 4, 5], [3, 4, 5, 6, 7], [3, 0, 5, 6], []], ids=str)
def test_invalid_filters_are_rejected(filters) -> None:
    with pytest.raises(ConfigError, match=r"`filters` must be four numbers of at least 1, got \["):
        ResNet12((3, 16, 16), 5, filters=filters)


def test_a_misspelled_pooling_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"`pooling` is 'thre'.*Did you mean 'three'"):
        ResNet12((3, 16, 16), 5, filters=FILTERS, pooling="thre")


def test_vectors_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"the shape of one input is \[1\], but this model takes"):
        ResNet12((1,), 5)


@pytest.mark.parametrize("shape", [(6, 16, 16), (0, 3, 16, 16)], ids=str)
def test_a_batch_that_is_not_a_stack_of_images_is_rejected(shape) -> None:
    model = ResNet12((3, 16, 16), 5)
    with pytest.raises(ConfigError, match=r"must be \[task, example, channel, height, width\]"):
        model(torch.zeros(shape))


@pytest.mark.parametrize(("num_devices", "order"), [(2, "second"), (4, "first")])
def test_parts_are_normalized_as_on_several_devices(num_devices, order) -> None:
    model, episode = make(device_parts=num_devices)
    theirs = meta_gradients(OnDevices(Plain(model), num_devices), episode, order=order)
    assert_equal(meta_gradients(model, episode, order=order), theirs)


def test_parts_reject_inductive_batch_norm() -> None:
    generator = torch.Generator().manual_seed(0)
    model = ResNet12((2, 16, 17), 3, filters=FILTERS, device_parts=2, generator=generator).double()
    with pytest.raises(ConfigError, match="`device_parts` splits the images"):
        meta_gradients(model, make()[1], batch_norm="inductive")
