"""Wide ResNets equal plain torch, with hand-written derivatives and with autograd."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit, PrototypeHead
from alfa.learner import Learner
from alfa.models import WideResNet
from alfa.ops import cross_entropy, per_task
from alfa.rules import ALFA, SGD
from alfa.types import Episode

INITS = {"learned": LearnedInit, "prototypes": PrototypeHead}


class Plain(nn.Module):
    """The same network in ordinary operations, with the same parameter names.

    Its dropout draws one task at a time, as over_tasks="loop" does.
    """

    def __init__(self, like: WideResNet, num_blocks: int) -> None:
        super().__init__()
        for name, module in like.named_children():
            self.add_module(name, module)
        self.num_blocks = num_blocks

    def forward(self, x: Tensor) -> Tensor:
        def activated(norm: nn.Module, x: Tensor) -> Tensor:
            return F.relu(F.batch_norm(x, None, None, norm.weight, norm.bias, training=True))

        x = self.conv1(x)
        for group in (1, 2, 3):
            for number in range(1, self.num_blocks + 1):
                block = self.get_submodule(f"group{group}_block{number}")
                a = activated(block.norm1, x)
                shortcut = block.conv_shortcut(a) if number == 1 and has_shortcut(block) else x
                main = activated(block.norm2, block.conv1(a))
                if hasattr(block, "drop"):
                    mask = block.drop.draw(main.permute(0, 2, 3, 1), 1)
                    main = main * mask.permute(0, 3, 1, 2)
                x = block.conv2(main) + shortcut
        return self.linear(activated(self.norm_last, x).mean((2, 3)))


def has_shortcut(block: nn.Module) -> bool:
    return hasattr(block, "conv_shortcut")


def make(shape=(2, 7, 8), width=1, depth=10, **options) -> tuple[WideResNet, Plain, Episode]:
    generator = torch.Generator().manual_seed(0)
    options = {"depth": depth, "width": width, "generator": generator, **options}
    model = WideResNet(shape, 3, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise)
    x = torch.randn((2, 12, *shape), generator=generator, dtype=torch.float64)
    y = torch.arange(3).repeat(4).expand(2, -1)
    plain = Plain(model, (depth - 4) // 6)
    return model, plain, Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


def meta_gradients(model, episode, init="learned", **options) -> list[Tensor]:
    start = INITS[init](model)
    generator = torch.Generator().manual_seed(1)
    rule = ALFA(start.layers, num_steps=2, state_gradient="full", generator=generator).double()
    learner = Learner(
        model, init=start, rule=rule, num_steps=2, **{"loss": cross_entropy, **options}
    )
    torch.manual_seed(2)
    outcome = learner(episode)
    loss = outcome.query_losses.mean()
    parameters = list(learner.meta_parameters())
    grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return [loss, outcome.outputs, outcome.adapted.support_losses, *grads]


def assert_equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-9)


@functools.cache
def of_plain_torch(init: str, order: str) -> list[Tensor]:
    _, plain, episode = make()
    return meta_gradients(plain, episode, init, order=order)


# With width 1, the first group has 16 filters, as its input, and an identity shortcut.
@pytest.mark.parametrize("options", [{}, {"width": 2}, {"depth": 16}], ids=str)
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 13)], ids=str)
def test_outputs_equal_plain_torch(shape, options) -> None:
    model, plain, episode = make(shape, **options)
    x = episode.support_x[0]
    torch.testing.assert_close(model(x), plain(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
@pytest.mark.parametrize(
    ("init", "order"), [("learned", "second"), ("prototypes", "second"), ("learned", "first")]
)
def test_meta_gradients_equal_plain_torch(init, order, over_tasks) -> None:
    model, _, episode = make()
    ours = meta_gradients(model, episode, init, order=order, over_tasks=over_tasks)
    assert_equal(ours, of_plain_torch(init, order))


def test_autograd_and_recomputing_equal_plain_torch() -> None:
    model, _, episode = make()
    expected = of_plain_torch("learned", "second")
    assert_equal(meta_gradients(model, episode, loss=per_task(F.cross_entropy)), expected)
    assert_equal(meta_gradients(model, episode, memory="recompute"), expected)


def test_a_wider_network_with_dropout_equals_plain_torch() -> None:
    model, plain, episode = make((1, 6, 6), width=2, dropout=0.3)
    ours = meta_gradients(model, episode, over_tasks="loop")
    assert_equal(ours, meta_gradients(plain, episode, over_tasks="loop"))
    assert not torch.allclose(ours[1], meta_gradients(make((1, 6, 6), width=2)[0], episode)[1])


def test_a_frozen_network_predicts_the_same() -> None:
    model, _, episode = make()
    init = LearnedInit(model)
    options = {"rule": SGD(init.layers), "loss": cross_entropy, "batch_norm": "inductive"}
    learner = Learner(model, init=init, **options)
    adapted = learner.adapt(episode.support_x, episode.support_y, order="none")
    frozen = adapted.frozen(episode.support_x[1], task=1)
    alone = torch.cat([frozen(query) for query in episode.query_x[1].split(1)])
    expected = adapted.predict(episode.query_x)[1]
    torch.testing.assert_close(alone, expected, rtol=1e-9, atol=1e-9)


def test_the_head_is_removed() -> None:
    model, _, episode = make()
    x, params = episode.query_x[:1], {n: p[None] for n, p in model.named_parameters()}
    features = model.embedded(params, x)
    assert features.shape[2:] == model.feature_shape == (64,)
    model.remove_head()
    assert model(x[0]).equal(features[0])
    assert not any(name.startswith("linear") for name, _ in model.named_parameters())


def test_the_number_of_weights_equals_the_published_one() -> None:
    """Zagoruyko and Komodakis report 36.5 million for 10 classes."""
    model = WideResNet((3, 32, 32), 10)
    assert sum(p.numel() for p in model.parameters()) == 36_479_194
    assert model.feature_shape == (640,)
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert sum(conv.kernel_size == (3, 3) for conv in convs) == 25  # and 3 shortcuts
    deviation = convs[5].weight.std()
    torch.testing.assert_close(deviation, torch.tensor((2 / (9 * 160)) ** 0.5), rtol=0.02, atol=0)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="`depth` must be 10, 16, 22, 28, or larger by 6, got 12"):
        WideResNet((3, 32, 32), 5, depth=12)
    with pytest.raises(ConfigError, match="`width` must be at least 1, got 0"):
        WideResNet((3, 32, 32), 5, width=0)
    with pytest.raises(ConfigError, match="3 x 8 are too small for this Wide ResNet"):
        WideResNet((3, 3, 8), 5)
