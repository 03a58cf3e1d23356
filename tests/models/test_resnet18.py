"""ResNet18 equals plain torch, with hand-written derivatives and with autograd."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit, PrototypeHead, ZeroHead
from alfa.learner import Learner
from alfa.models import ResNet18
from alfa.ops import cross_entropy
from alfa.rules import ALFA
from alfa.types import Episode

FILTERS = [3, 4, 5, 6]
HEADS = {"learned": LearnedInit, "prototypes": PrototypeHead, "zero": ZeroHead}


class Plain(nn.Module):
    """The same network in ordinary operations, with the same parameter names.

    Batch norm uses the statistics of the first `num_first` examples; None for all.
    """

    def __init__(self, like: ResNet18, num_first: int | None = None) -> None:
        super().__init__()
        self.num_first = num_first
        for name, module in like.named_children():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        def normed(module: nn.Module, part: str, x: Tensor) -> Tensor:
            norm = module.get_submodule(f"norm{part}")
            z = module.get_submodule(f"conv{part}")(x)
            if self.num_first is None:
                return F.batch_norm(z, None, None, norm.weight, norm.bias, training=True)
            var, mean = torch.var_mean(z[: self.num_first], (0, 2, 3), correction=0, keepdim=True)
            gamma, beta = (p[:, None, None] for p in (norm.weight, norm.bias))
            return gamma * (z - mean) / (var + 1e-5).sqrt() + beta

        x = F.max_pool2d(F.relu(normed(self, "1", x)), 3, 2, 1)
        for group in range(1, 5):
            for letter in "ab":
                block = self.get_submodule(f"block{group}{letter}")
                main = normed(block, "2", F.relu(normed(block, "1", x)))
                x = F.relu(main + (normed(block, "_shortcut", x) if letter == "a" else x))
        return self.linear(x.mean((2, 3)))


def make(shape=(2, 17, 19), ways=3) -> tuple[ResNet18, Episode]:
    generator = torch.Generator().manual_seed(0)
    model = ResNet18(shape, ways, filters=FILTERS, generator=generator).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    x = torch.randn((2, 4 * ways, *shape), generator=generator, dtype=torch.float64)
    y = torch.arange(ways).repeat(4).expand(2, -1)
    return model, Episode(x[:, : 2 * ways], y[:, : 2 * ways], x[:, 2 * ways :], y[:, 2 * ways :])


def meta_gradients(model: nn.Module, episode: Episode, head: str, **options) -> list[Tensor]:
    init = HEADS[head](model)
    rule = ALFA(
        init.layers,
        num_steps=2,
        state_gradient="full",
        generator=torch.Generator().manual_seed(1),
    ).double()
    learner = Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=2, **options)
    num_first = getattr(model, "num_first", None)
    if num_first is None:
        outputs = learner(episode).outputs
    else:
        # The statistics are computed from the support set, so it comes first.
        adapted = learner.adapt(episode.support_x, episode.support_y)
        together = torch.cat([episode.support_x, episode.query_x], dim=1)
        outputs = adapted.predict(together)[:, num_first:]
    loss = cross_entropy(outputs, episode.query_y).mean()
    grads = torch.autograd.grad(loss, list(learner.meta_parameters()), materialize_grads=True)
    return [loss, outputs, *grads]


@functools.cache
def of_plain_torch(head: str, order: str, batch_norm: str) -> list[Tensor]:
    model, episode = make()
    num_first = episode.support_x.shape[1] if batch_norm == "inductive" else None
    return meta_gradients(Plain(model, num_first), episode, head, order=order)


@pytest.mark.parametrize("size", [(16, 16), (33, 33), (42, 37)], ids=str)
def test_outputs_equal_plain_torch(size) -> None:
    model, episode = make((3, *size))
    x = episode.support_x[0]
    torch.testing.assert_close(model(x), Plain(model)(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("head", "order", "batch_norm"),
    [
        ("prototypes", "second", "transductive"),
        ("learned", "second", "inductive"),
        ("zero", "first", "transductive"),
        ("zero", "first", "inductive"),
    ],
)
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_meta_gradients_equal_plain_torch(head, order, over_tasks, batch_norm) -> None:
    model, episode = make()
    ours = meta_gradients(
        model, episode, head, order=order, over_tasks=over_tasks, batch_norm=batch_norm
    )
    for left, right in zip(ours, of_plain_torch(head, order, batch_norm), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-9)


def test_both_kinds_of_batch_norm_differ() -> None:
    """Otherwise, the test above would compare one kind with itself."""
    by_queries, by_support = (
        of_plain_torch("zero", "first", kind)[1] for kind in ("transductive", "inductive")
    )
    assert not torch.allclose(by_queries, by_support, rtol=1e-3, atol=1e-3)


def test_the_number_of_weights_equals_the_published_one() -> None:
    """He et al. have 11.2 million weights without the last layer and the first 1 x 1 shortcut."""
    model = ResNet18((3, 84, 84), 5)
    body = sum(p.numel() for name, p in model.named_parameters() if "linear" not in name)
    assert body == 11_176_512 + 64 * 64 + 2 * 64
    assert model.linear.in_features == 512
    assert all(module.bias is None for module in model.modules() if isinstance(module, nn.Conv2d))


def test_the_same_seed_gives_the_same_weights() -> None:
    def make(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        model = ResNet18((1, 16, 16), 2, filters=FILTERS, generator=generator)
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(make(3), make(3))
    assert not torch.equal(make(3), make(4))


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="15 x 20 are too small for ResNet18"):
        ResNet18((3, 15, 20), 5)
    with pytest.raises(ConfigError, match="must be four numbers"):
        ResNet18((3, 32, 32), 5, filters=[8, 8])
    with pytest.raises(ConfigError, match="takes images"):
        ResNet18((3,), 5)
