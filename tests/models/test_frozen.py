"""Frozen models predict the same as the adapted models that they come from."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from alfa import MLP, SGD, Conv4, LearnedInit, PrototypeHead, ResNet12, adapt, cross_entropy, mse
from alfa.errors import AlfaWarning, ConfigError
from alfa.learner import Adapted
from alfa.models import (
    Model,
    ResNet18,
    WideResNet12,
    batch_statistics,
    disable_dropout,
    uses_batch_statistics,
)

MODELS = {
    "conv4": lambda: Conv4((3, 16, 16), 4, filters=6),
    "conv4, three blocks": lambda: Conv4((1, 20, 20), 4, filters=6, num_blocks=3),
    "resnet12": lambda: ResNet12((3, 16, 16), 4, filters=[4, 6, 8, 10]),
    "resnet12, published": lambda: ResNet12((3, 18, 18), 4, filters=[4, 6, 8, 10], pooling="three"),
    "resnet12, wide": lambda: WideResNet12((3, 32, 32), 4, filters=[4, 6, 8, 10], dropout=0.0),
    "conv4, growing": lambda: Conv4((3, 16, 16), 4, filters=[3, 4, 5, 6]),
    "resnet18": lambda: ResNet18((3, 32, 32), 4, filters=[4, 6, 8, 10]),
}


def _adapted(model: Model, *, num_channels: int, side: int) -> tuple[Adapted, torch.Tensor]:
    """Adapt to two tasks, and return the result and the support sets."""
    model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                # Negative gammas would expose an activation in the wrong place.
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, num_channels, side, side, generator=generator, dtype=torch.float64)
    y = torch.arange(4).repeat(2, 2)
    init = LearnedInit(model)
    rule = SGD(init.layers, learning_rate=0.1)
    options = {"init": init, "rule": rule, "loss": cross_entropy, "order": "none"}
    return adapt(model, x, y, batch_norm="inductive", **options), x  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
def test_a_frozen_model_predicts_the_same(name: str) -> None:
    model = MODELS[name]()
    side = {
        "conv4, three blocks": 20,
        "resnet12, published": 18,
        "resnet18": 32,
        "resnet12, wide": 32,
    }.get(name, 16)
    num_channels = 1 if name == "conv4, three blocks" else 3
    adapted, x = _adapted(model, num_channels=num_channels, side=side)
    queries = torch.randn(2, 5, *x.shape[2:], dtype=torch.float64)
    expected = adapted.predict(queries)
    for task in range(2):
        frozen = adapted.frozen(x[task], task=task)
        torch.testing.assert_close(frozen(queries[task]), expected[task], rtol=1e-9, atol=1e-9)
        # Each query alone.
        alone = torch.cat([frozen(query) for query in queries[task].split(1)])
        torch.testing.assert_close(alone, expected[task], rtol=1e-9, atol=1e-9)


def test_a_frozen_model_is_independent_of_the_learner() -> None:
    adapted, x = _adapted(MODELS["conv4"](), num_channels=3, side=16)
    frozen = adapted.frozen(x[0])
    before = frozen(x[0])
    with torch.no_grad():
        for parameter in adapted.model.parameters():
            parameter.add_(1)
        adapted.params.flat.add_(1)
    assert frozen(x[0]).equal(before)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_a_frozen_head_has_an_output_for_each_class_of_the_task() -> None:
    model = Conv4((3, 16, 16), 5, filters=6)
    init = PrototypeHead(model)
    x, y = torch.randn(1, 14, 3, 16, 16), torch.arange(7).repeat(2)[None]
    adapted = adapt(model, x, y, init=init, rule=SGD(init.layers), loss=cross_entropy)
    assert adapted.frozen(x[0])(x[0][:3]).shape == (3, 7)


def test_a_frozen_perceptron_predicts_the_same() -> None:
    model = MLP((2, 3), 2, hidden=[10, 8]).double()
    init = LearnedInit(model)
    x, y = torch.randn(2, 6, 2, 3).double(), torch.randn(2, 6, 2).double()
    adapted = adapt(model, x, y, init=init, rule=SGD(init.layers), loss=mse)
    found = adapted.frozen(x[1], task=1)(x[1])
    torch.testing.assert_close(found, adapted.predict(x)[1].detach(), rtol=1e-12, atol=1e-12)


def test_any_other_module_is_bound_to_its_adapted_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    init = LearnedInit(model, adapt=["2.*"])
    x, y = torch.randn(1, 6, 3).double(), torch.randn(1, 6, 2).double()
    adapted = adapt(model, x, y, init=init, rule=SGD(init.layers), loss=mse)
    found = adapted.frozen(x[0])(x[0])
    torch.testing.assert_close(found, adapted.predict(x)[0].detach(), rtol=1e-12, atol=1e-12)
    assert not found.equal(model(x[0]))


class Normed(nn.Module):
    """Batch norm with and without running statistics, used and unused, and dropout."""

    def __init__(self, *, twice: bool = False) -> None:
        super().__init__()
        self.conv, self.first = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.body, self.second = nn.Linear(48, 5), nn.BatchNorm1d(5, track_running_stats=False)
        self.unused = nn.BatchNorm2d(3)
        self.spare = nn.BatchNorm2d(3, track_running_stats=False)
        self.head = nn.Linear(5, 4)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(self.drop(self.first(self.conv(x)).relu().flatten(1)))
        x = self.second(input=x).relu()
        return self.head(self.second(x) if self.twice else x)


def _normed(model: Normed) -> tuple[Adapted, torch.Tensor]:
    """Adapt to two tasks without dropout, as an estimator does."""
    model.double().drop.eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, 1, 6, 6, generator=generator, dtype=torch.float64)
    y = torch.arange(4).repeat(2, 2)
    init = LearnedInit(model)
    rule = SGD(init.layers, learning_rate=0.1)
    return adapt(model, x, y, init=init, rule=rule, loss=cross_entropy, order="none"), x


def test_batch_norm_of_any_module_keeps_the_statistics_of_the_support_set() -> None:
    model = Normed()
    adapted, x = _normed(model)
    expected = adapted.predict(x)
    before = copy.deepcopy(model.state_dict())
    # A frozen model has no dropout, even if the learner's is active.
    model.drop.train()
    for task in range(2):
        frozen = adapted.frozen(x[task], task=task)
        torch.testing.assert_close(frozen(x[task]), expected[task], rtol=1e-9, atol=1e-9)
        alone = torch.cat([frozen(image) for image in x[task].split(1)])
        torch.testing.assert_close(alone, expected[task], rtol=1e-9, atol=1e-9)
        assert not any(map(uses_batch_statistics, frozen.modules()))
    # The model itself is unchanged.
    assert all(map(torch.equal, model.state_dict().values(), before.values()))
    assert all(module.training for module in model.modules())


class WithDropout(nn.Module):
    """Dropout in attention, in a recurrent layer, as a module, and as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
        self.recurrent = nn.LSTM(6, 6, num_layers=2, dropout=0.5, batch_first=True)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(6, 4)
        self.by_function = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1, 2)
        x = self.recurrent(self.attention(x, x, x, need_weights=False)[0])[0].mean(1)
        return self.head(nn.functional.dropout(self.drop(x), self.by_function, self.training))


def test_a_frozen_module_has_no_dropout() -> None:
    model, x = WithDropout(), torch.randn(1, 8, 1, 6, 6)
    model.by_function = 0.5
    init = LearnedInit(model, adapt=["head.*"])
    y = torch.arange(4).repeat(2)[None]
    # No steps: torch cannot stack attention or recurrent layers of several tasks.
    adapted = adapt(
        model, x, y, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=0, order="none"
    )
    frozen = adapted.frozen(x[0])
    assert frozen(x[0]).equal(frozen(x[0]))
    assert all(module.training for module in model.modules())


def test_dropout_is_disabled_and_enabled() -> None:
    model, x = WithDropout(), torch.randn(3, 1, 6, 6)
    assert not model(x).equal(model(x))
    undo = disable_dropout(model)
    assert model(x).equal(model(x))
    # cuDNN can differentiate only layers in training mode.
    assert model.recurrent.training
    assert model.attention.training
    undo()
    assert (model.attention.dropout, model.recurrent.dropout) == (0.5, 0.5)
    assert all(module.training for module in model.modules())


def test_a_frozen_module_can_normalize_examples_together() -> None:
    adapted, x = _normed(Normed())
    queries = torch.randn(1, 5, *x.shape[2:], dtype=torch.float64)
    expected = adapted.predict(queries.expand(2, -1, -1, -1, -1))[0]
    frozen = adapted.frozen(x[0])
    before = frozen(queries[0])
    with batch_statistics(frozen):
        torch.testing.assert_close(frozen(queries[0]), expected, rtol=1e-9, atol=1e-9)
    assert frozen(queries[0]).equal(before)
    assert not torch.allclose(before, expected)


def test_running_statistics_are_kept() -> None:
    model = Normed()
    model.first.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
    model.first.eval()
    adapted, x = _normed(model)
    frozen = adapted.frozen(x[0])
    torch.testing.assert_close(frozen(x[0]), adapted.predict(x)[0], rtol=1e-9, atol=1e-9)
    with batch_statistics(frozen):
        # Only the layer without running statistics changes.
        torch.testing.assert_close(frozen(x[0][:3]), adapted.predict(x[:, :3])[0])


def test_a_reused_layer_keeps_normalizing_by_the_batch() -> None:
    adapted, x = _normed(Normed(twice=True))
    with pytest.warns(AlfaWarning, match=r"Normed uses its batch norm second more than once"):
        frozen = adapted.frozen(x[0])
    assert uses_batch_statistics(frozen.module.second)  # type: ignore[union-attr, arg-type]
    torch.testing.assert_close(frozen(x[0]), adapted.predict(x)[0], rtol=1e-9, atol=1e-9)


def test_a_bound_module_is_independent_of_the_learner() -> None:
    model = Normed()
    adapted, x = _normed(model)
    frozen = adapted.frozen(x[0])
    before = frozen(x[0])
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers(), adapted.params.flat):
            tensor.add_(1)
    assert frozen(x[0]).equal(before)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_normalization_by_parts_of_a_batch_is_rejected() -> None:
    model = ResNet12((3, 16, 16), 4, filters=[4, 6, 8, 10], device_parts=2)
    init = LearnedInit(model)
    x, y = torch.randn(1, 8, 3, 16, 16), torch.arange(4).repeat(2)[None]
    adapted = adapt(model, x, y, init=init, rule=SGD(init.layers), loss=cross_entropy)
    with pytest.raises(ConfigError, match="cannot classify each example independently"):
        adapted.frozen(x[0])
