"""The ResNet12 of MetaOptNet equals plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit, PrototypeHead
from alfa.learner import Learner
from alfa.models import DropBlock, WideResNet12
from alfa.ops import cross_entropy
from alfa.rules import ALFA
from alfa.types import Episode

FILTERS = [3, 4, 5, 6]


class Plain(nn.Module):
    """The same network in ordinary operations, with the same parameter names."""

    def __init__(self, like: WideResNet12, *, slope: float, average: bool) -> None:
        super().__init__()
        for name, module in like.named_children():
            self.add_module(name, module)
        self.slope, self.average = slope, average

    def forward(self, x: Tensor) -> Tensor:
        for number in range(1, 5):
            block = self.get_submodule(f"block{number}")

            def normed(part: str, x: Tensor, block: nn.Module = block) -> Tensor:
                norm = block.get_submodule(f"norm{part}")
                z = block.get_submodule(f"conv{part}")(x)
                return F.batch_norm(z, None, None, norm.weight, norm.bias, training=True)

            main = x
            for part in "12":
                main = F.leaky_relu(normed(part, main), self.slope)
            x = F.leaky_relu(normed("3", main) + normed("_shortcut", x), self.slope)
            x = F.max_pool2d(x, 2)
            if hasattr(self, f"drop{number}"):
                drop = self.get_submodule(f"drop{number}")
                x = x * drop.draw(x.permute(0, 2, 3, 1), 1).permute(0, 3, 1, 2)
        return self.linear(x.mean((2, 3)) if self.average else x.flatten(1))


def make(shape=(2, 32, 33), *, slope=0.1, average=False, dropout=0.0, **options):
    generator = torch.Generator().manual_seed(0)
    given = {"filters": FILTERS, "slope": slope, "average": average, "dropout": dropout}
    model = WideResNet12(shape, 3, generator=generator, **given, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    x = torch.randn((2, 9, *shape), generator=generator, dtype=torch.float64)
    y = torch.arange(3).repeat(3).expand(2, -1)
    plain = Plain(model, slope=slope, average=average)
    return model, plain, Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


def meta_gradients(model, episode, init=LearnedInit, **options) -> list[Tensor]:
    start = init(model)
    generator = torch.Generator().manual_seed(1)
    rule = ALFA(start.layers, num_steps=2, state_gradient="full", generator=generator).double()
    learner = Learner(model, init=start, rule=rule, loss=cross_entropy, num_steps=2, **options)
    torch.manual_seed(2)
    outcome = learner(episode)
    loss = outcome.query_losses.mean()
    grads = torch.autograd.grad(loss, list(learner.meta_parameters()), materialize_grads=True)
    return [loss, outcome.outputs, *grads]


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"average": True, "shape": (1, 16, 17)},
        {"slope": 0.0, "shape": (1, 16, 16)},
    ],
    ids=str,
)
def test_meta_gradients_equal_plain_torch(options, over_tasks) -> None:
    model, plain, episode = make(**options)
    assert model(episode.support_x[0]).allclose(plain(episode.support_x[0]), rtol=1e-9)
    ours = meta_gradients(model, episode, over_tasks=over_tasks)
    for left, right in zip(ours, meta_gradients(plain, episode), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("order", ["second", "first"])
def test_dropout_equals_plain_torch(order) -> None:
    model, plain, episode = make(dropout=0.2, block_size=2)
    options = {"init": PrototypeHead, "order": order, "over_tasks": "loop"}
    ours = meta_gradients(model, episode, **options)
    for left, right in zip(ours, meta_gradients(plain, episode, **options), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-9)


def test_all_places_are_features() -> None:
    for shape, expected in (((3, 84, 84), (6, 5, 5)), ((3, 33, 50), (6, 2, 3))):
        model = WideResNet12(shape, 3, filters=FILTERS)
        assert model.feature_shape == expected
        model.remove_head()
        assert model(torch.zeros(2, *shape)).shape == (2, torch.Size(expected).numel())


def test_the_defaults_are_metaoptnets() -> None:
    model = WideResNet12((3, 84, 84), 64)
    # The widely reported 12.4 million weights of this network without its last layer.
    body = sum(p.numel() for n, p in model.named_parameters() if not n.startswith("linear"))
    assert body == 12_424_320
    assert model.feature_shape == (640, 5, 5)
    drops = [model.get_submodule(f"drop{number}") for number in range(1, 5)]
    assert [drop.p for drop in drops] == [0.1] * 4
    assert [getattr(drop, "size", 1) for drop in drops] == [1, 1, 5, 5]
    assert isinstance(drops[3], DropBlock)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="`block_size` must be at least 1, got 0"):
        WideResNet12((3, 16, 16), 5, filters=FILTERS, block_size=0)
    with pytest.raises(ConfigError, match="`slope` must be at least 0 and less than 1, got 1"):
        WideResNet12((3, 16, 16), 5, filters=FILTERS, slope=1)
    with pytest.raises(ConfigError, match="15 x 20 are too small for this ResNet12, which needs"):
        WideResNet12((3, 15, 20), 5)
