"""Selections of the head and the body, and the init of heads."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alfa import (
    MLP,
    SGD,
    Conv4,
    Episode,
    LearnedInit,
    Learner,
    PrototypeHead,
    TaskHead,
    cross_entropy,
)
from alfa.errors import ConfigError
from alfa.inits import prototypes
from alfa.models import Head, Headed


class Distances(Head):
    task_parameters = ("centers",)

    def __init__(self, feature_shape, num_outputs) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(num_outputs, *feature_shape).flatten(1))
        self.scale = nn.Parameter(torch.ones(()))

    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way)}

    def forward(self, z):
        return -self.scale * (z.unsqueeze(1) - self.centers).square().sum(-1)


def headed() -> Headed:
    torch.manual_seed(0)
    backbone = MLP((2,), 3, hidden=[7, 5])
    return Headed(backbone, Distances(backbone.feature_shape, 3)).double()


def episode(*, way: int = 3) -> Episode:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 4 * way, 2, generator=generator, dtype=torch.float64)
    y = torch.arange(way).repeat(2, 4)
    return Episode(x[:, : 2 * way], y[:, : 2 * way], x[:, 2 * way :], y[:, 2 * way :])


def test_head_and_body_select_disjoint_layers() -> None:
    model = Conv4((1, 16, 16), 5, filters=4)
    head, body = (list(LearnedInit(model, adapt=part).layers) for part in ("head", "body"))
    assert head == ["linear.weight", "linear.bias"]
    assert head + body == [*head, *(n for n in LearnedInit(model).layers if n not in head)]
    # Normalization parameters belong to neither.
    assert all(name.startswith("conv") for name in body)
    both = LearnedInit(model, adapt=["body", "head", "norm1.weight"]).layers
    assert set(both) == {*head, *body, "norm1.weight"}


def test_the_head_of_any_module_is_its_last_linear_layer() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert list(LearnedInit(model, adapt="head").layers) == ["2.weight", "2.bias"]
    assert list(LearnedInit(model, adapt="body").layers) == ["0.weight", "0.bias"]
    with pytest.raises(ConfigError, match="no linear layer"):
        LearnedInit(nn.Conv2d(1, 1, 1), adapt="head")


def test_a_parameter_named_like_a_selection_has_precedence() -> None:
    model = nn.Linear(2, 3)
    model.head = nn.Parameter(torch.zeros(1))
    assert list(LearnedInit(model, adapt="head").layers) == ["head"]


def test_zero_steps_of_a_distance_head_are_prototypical_networks() -> None:
    model = headed()
    init = TaskHead(model, adapt="head")
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=0)
    tasks = episode()
    outcome = learner(tasks)
    for task in range(2):
        z, q = (
            model.embedded(dict_of(model), x[task : task + 1])[0]
            for x in (tasks.support_x, tasks.query_x)
        )
        for query, row in zip(q, outcome.outputs[task], strict=True):
            for label in range(3):
                center = z[tasks.support_y[task] == label].mean(0)
                torch.testing.assert_close(row[label], -(query - center).square().sum())
    # The same method as an init with a linear layer, up to a constant for each query.
    backbone = MLP((2,), 3, hidden=[7, 5]).double()
    backbone.load_state_dict(model.backbone.state_dict(), strict=False)
    linear = PrototypeHead(backbone, adapt="head")
    other = Learner(backbone, init=linear, rule=SGD(linear.layers), loss=cross_entropy, num_steps=0)
    torch.testing.assert_close(other(tasks).query_losses, outcome.query_losses)


def dict_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.unsqueeze(0) for name, p in model.named_parameters()}


def test_a_head_takes_any_number_of_classes_and_inner_steps() -> None:
    model = headed()
    init = TaskHead(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=2)
    outcome = learner(episode(way=4))
    assert outcome.outputs.shape == (2, 8, 4)
    assert outcome.adapted.params["head.centers"].shape == (2, 4, 5)
    trained = list(init.meta_parameters())
    assert not any(p is model.head.centers for p in trained)
    gradients = torch.autograd.grad(outcome.query_losses.sum(), trained)
    assert all(bool(g.any()) for g in gradients)


def test_a_class_without_support_is_an_error() -> None:
    model = headed()
    init = TaskHead(model, adapt="head")
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=0)
    tasks = episode()
    with pytest.raises(ConfigError, match="no example of class 1"):
        learner.adapt(tasks.support_x, torch.where(tasks.support_y == 1, 0, tasks.support_y))


def test_the_init_must_fit_the_kind_of_the_last_layer() -> None:
    with pytest.raises(ConfigError, match=r"needs a model with a head .* wrap the model"):
        TaskHead(MLP((2,), 3))
    with pytest.raises(ConfigError, match=r"computes a linear layer, but head is a Distances"):
        PrototypeHead(headed())
    with pytest.raises(ConfigError, match=r"`adapt` leaves out head.centers"):
        TaskHead(headed(), adapt=["head.scale"])


def test_frozen_parameters_of_the_body_are_not_adapted() -> None:
    model = headed()
    model.backbone.requires_grad_(False)
    assert set(TaskHead(model).layers) == {"head.centers", "head.scale"}
