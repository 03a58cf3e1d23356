"""The network on features: its start, its options, and its forms."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit, PrototypeHead, RidgeHead, TaskHead, ZeroHead
from alfa.learner import Learner
from alfa.models import FeatureMap, Headed, LogisticHead, run_stacked
from alfa.ops import cross_entropy, logistic_regression
from alfa.rules import ALFA, SGD
from alfa.types import Episode, Params

SIZE, WAY = 12, 3


def model(**options) -> FeatureMap:
    generator = torch.Generator().manual_seed(0)
    return FeatureMap((SIZE,), WAY, generator=generator, **options).double()


def changed(found: FeatureMap) -> FeatureMap:
    """Return the model with another map, as after training."""
    with torch.no_grad():
        found.map.weight.copy_(torch.randn(SIZE, SIZE, dtype=torch.float64) / 4)
    return found


@pytest.fixture
def episode(randn) -> Episode:
    """Two tasks with two support and three query examples of each class; features vary in sign."""
    y = torch.arange(WAY).repeat_interleave(2), torch.arange(WAY).repeat_interleave(3)
    support_y, query_y = (labels.expand(2, -1) for labels in y)
    return Episode(randn(2, 6, SIZE), support_y, randn(2, 9, SIZE), query_y)


def test_the_output_is_the_formula(randn) -> None:
    x, found = randn(5, SIZE), changed(model(scale=3.0))
    u = F.normalize(x.sign() * x.abs().sqrt(), dim=1)
    z = 3 * F.normalize(u + u @ found.map.weight.T, dim=1)
    assert torch.allclose(found(x), z @ found.linear.weight.T + found.linear.bias)
    assert found.linear.bias.count_nonzero() == 0


def test_the_start_classifies_the_own_features(episode: Episode) -> None:
    x, head = episode.query_x, LogisticHead((SIZE,), WAY)
    init = TaskHead(Headed(model(power=1.0), head).double(), adapt="head")
    options = {"init": init, "rule": SGD(init.layers), "loss": cross_entropy, "num_steps": 0}
    outputs = Learner(init.model, **options)(episode).outputs
    support = F.normalize(episode.support_x, dim=2)
    weight, bias = logistic_regression(support, episode.support_y, WAY)
    expected = F.normalize(x, dim=2) @ weight.mT + bias.unsqueeze(1)
    assert torch.allclose(outputs, expected, atol=1e-6)


def test_every_option_has_an_effect(randn) -> None:
    x = randn(4, SIZE)
    plain = changed(model())
    names = {name for name, _ in plain.named_parameters()}
    assert names == {"scale", "map.weight", "linear.weight", "linear.bias"}
    other = model(learned_map=False)
    assert {name for name, _ in other.named_parameters()} == {"linear.weight", "linear.bias"}
    assert torch.allclose(model(learned_map=False, scale=2.0)(x), 2 * other(x))
    assert not torch.allclose(model(power=1.0)(x), model()(x))
    assert torch.allclose(model(scale=2.0)(x), 2 * model()(x))
    assert torch.allclose(model()(x), other(x))
    assert not torch.allclose(plain(x), other(x))


def test_factors_of_the_features_do_not_matter(randn) -> None:
    x, found = randn(4, SIZE), changed(model())
    assert torch.allclose(found(7 * x), found(x))
    # All features of an image can be zero.
    assert found(torch.zeros(1, SIZE).double()).isfinite().all()


def test_each_task_uses_its_own_map(randn) -> None:
    x, found = randn(2, 4, SIZE), model()
    own = {name: randn(2, *p.shape) for name, p in found.named_parameters()}
    own["scale"] = own["scale"].abs()
    together = run_stacked(found, Params.of(own), {}, x)
    for task in range(2):
        alone = {name: tensor[task : task + 1] for name, tensor in own.items()}
        assert torch.allclose(
            run_stacked(found, Params.of(alone), {}, x[task][None])[0], together[task]
        )
        frozen = found.frozen({name: tensor[task] for name, tensor in own.items()}, x[task])
        assert torch.allclose(frozen(x[task]), together[task])


@pytest.mark.parametrize("init", [LearnedInit, PrototypeHead, RidgeHead, ZeroHead])
@pytest.mark.parametrize("adapt", [None, ["head"]])
def test_inits_and_rules_work_on_it(init: type, adapt: list[str] | None, episode: Episode) -> None:
    found = init(changed(model()), adapt=adapt).double()
    expected = {"linear.weight", "linear.bias"} | (
        {"scale", "map.weight"} if adapt is None else set()
    )
    assert set(found.layers) == expected
    rule = ALFA(found.layers, num_steps=2, generator=torch.Generator().manual_seed(0)).double()
    learner = Learner(found.model, init=found, rule=rule, loss=cross_entropy, num_steps=2)
    outcome = learner(episode)
    outcome.query_losses.mean().backward()
    gradient = found.model.map.weight.grad
    assert gradient is not None
    assert gradient.abs().max() > 0
    classifier = outcome.adapted.frozen(episode.support_x[1], task=1)
    assert torch.allclose(classifier(episode.query_x[1]), outcome.outputs[1])


def test_heads_replace_the_linear_layer(episode: Episode) -> None:
    backbone = changed(model(scale=2.0))
    z = F.normalize(backbone.embedded(dict(_stacked(backbone)), episode.query_x[:1]), dim=2)
    headed = Headed(backbone, LogisticHead((SIZE,), WAY).double())
    assert not any("linear" in name for name, _ in headed.named_parameters())
    params = Params.of(dict(_stacked(headed)))
    assert torch.allclose(F.normalize(headed.embedded(params, episode.query_x[:1]), dim=2), z)
    frozen = headed.frozen(
        {n: p.detach() for n, p in headed.named_parameters()}, episode.query_x[0]
    )
    assert torch.allclose(frozen(episode.query_x[0]), headed(episode.query_x[0]))


def _stacked(module: torch.nn.Module):
    return ((name, p.detach().unsqueeze(0)) for name, p in module.named_parameters())


def test_weight_decay_pulls_the_map_to_the_identity(randn) -> None:
    found, x = changed(model()), randn(4, SIZE)
    start = model(learned_map=False)(x)
    before = (found(x) - start).norm()
    with torch.no_grad():
        found.map.weight.mul_(0.1)
    assert (found(x) - start).norm() < 0.3 * before


def test_wrong_options_raise() -> None:
    with pytest.raises(ConfigError, match=r"inputs have the shape \(3, 8, 8\); set tasks.backbone"):
        FeatureMap((3, 8, 8), 5)
    with pytest.raises(ConfigError, match="`power` must be greater than 0, got 0"):
        FeatureMap((8,), 5, power=0)
    with pytest.raises(ConfigError, match="`scale` must be greater than 0, got -1"):
        FeatureMap((8,), 5, scale=-1)
