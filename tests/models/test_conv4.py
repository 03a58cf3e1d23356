"""4-CONV: equal to plain torch, by hand-written derivatives and by autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import FixedInit, LearnedInit
from alfa.inner import Learner
from alfa.models import Conv4
from alfa.ops import cross_entropy, per_task
from alfa.rules import ALFA, SGD, LearnedRates
from alfa.types import Episode


class Plain(nn.Module):
    """The same network in ordinary operations, with the same names."""

    def __init__(self, like: Conv4) -> None:
        super().__init__()
        for name, module in like.named_children():
            self.add_module(name, module)
        self.num_blocks = like.num_blocks

    def forward(self, x: Tensor) -> Tensor:
        for block in range(1, self.num_blocks + 1):
            x = self.get_submodule(f"conv{block}")(x)
            norm = self.get_submodule(f"norm{block}")
            x = F.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
            x = F.max_pool2d(F.leaky_relu(x, 0.01), 2)
        return self.linear(x.flatten(1))


def make(shape=(2, 21, 16), filters=3, num_blocks=3, ways=3) -> tuple[Conv4, Episode]:
    generator = torch.Generator().manual_seed(0)
    model = Conv4(shape, ways, filters=filters, num_blocks=num_blocks, generator=generator)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
        model.norm1.weight[0] = -0.7
    x = torch.randn((2, 4 * ways, *shape), generator=generator, dtype=torch.float64)
    y = torch.arange(ways).repeat(4).expand(2, -1)
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


def meta_gradients(model, episode, rule, init, *, loss=cross_entropy, order="second"):
    start = init(model)
    made = RULES[rule](start.layers).double()
    learner = Learner(model, init=start, rule=made, loss=loss, num_steps=3, order=order)
    outcome = learner(episode)
    parameters = list(learner.meta_parameters())
    loss_value = outcome.query_losses.mean()
    grads: tuple[Tensor, ...] = ()
    if parameters:
        grads = torch.autograd.grad(
            loss_value, parameters, allow_unused=True, materialize_grads=True
        )
    return [loss_value, outcome.adapted.support_losses, *grads]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("init", [LearnedInit, FixedInit])
@pytest.mark.parametrize("order", ["second", "first"])
def test_meta_gradients_equal_those_of_plain_torch(rule, init, order) -> None:
    model, episode = make()
    ours = meta_gradients(model, episode, rule, init, order=order)
    theirs = meta_gradients(Plain(model), episode, rule, init, order=order)
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 11), (1, 15, 10)], ids=str)
def test_any_image_size_will_do(shape) -> None:
    model, episode = make(shape, filters=2)
    ours = meta_gradients(model, episode, "alfa", LearnedInit)
    theirs = meta_gradients(Plain(model), episode, "alfa", LearnedInit)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def test_another_loss_goes_by_autograd_to_the_same_numbers() -> None:
    model, episode = make()
    same = per_task(F.cross_entropy)
    ours = meta_gradients(model, episode, "alfa", LearnedInit)
    theirs = meta_gradients(model, episode, "alfa", LearnedInit, loss=same)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def test_it_has_ten_layers_that_are_adapted() -> None:
    init = LearnedInit(Conv4((3, 84, 84), 5))
    assert len(init.layers) == 10
    assert init.layers["linear.weight"] == (5, 1200)
    assert set(init.shared()) == {
        f"norm{block}.{part}" for block in (1, 2, 3, 4) for part in ("weight", "bias")
    }


def test_images_too_small_are_refused() -> None:
    with pytest.raises(ConfigError, match="images of 12 x 28 are too small for 4 blocks"):
        Conv4((1, 12, 28), 5)
