import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.inits import Attenuated, FixedInit, LearnedInit, Support, select_layers
from alfa.learner import Learner, adapt
from alfa.ops import mse
from alfa.rules import SGD
from alfa.types import Params


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.Conv1d(1, 1, 1))
        self.norm = nn.BatchNorm1d(4)
        self.group = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 2)
        self.decoder = nn.Linear(2, 2)
        self.decoder.weight = self.encoder.weight


def support_of(num_tasks: int, gradients=None) -> Support:
    """Return support sets whose `embed`, and by default `gradients`, must not be called."""

    def nothing(*_):
        raise AssertionError("this init must not use gradients or embeddings")

    x = torch.zeros(num_tasks, 1, 1)
    return Support(x, x, gradients or nothing, nothing)


# Adapted layers


def test_all_parameters_except_normalization_are_adapted():
    assert list(select_layers(Normed(), None)) == [
        "body.0.weight",
        "body.0.bias",
        "body.2.weight",
        "body.2.bias",
        "head.weight",
        "head.bias",
    ]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("head.*", ["head.weight", "head.bias"]),
        (["head.*"], ["head.weight", "head.bias"]),
        (
            ["*.bias"],
            ["body.0.bias", "body.1.bias", "body.2.bias", "norm.bias", "group.bias", "head.bias"],
        ),
        (["head.bias", "norm.weight"], ["norm.weight", "head.bias"]),
        (
            ["head.*", "*.bias"],
            [
                "body.0.bias",
                "body.1.bias",
                "body.2.bias",
                "norm.bias",
                "group.bias",
                "head.weight",
                "head.bias",
            ],
        ),
    ],
)
def test_patterns_choose_layers_in_the_order_of_the_model(patterns, expected):
    assert list(select_layers(Normed(), patterns)) == expected


def test_layers_know_their_shapes():
    layers = select_layers(nn.Linear(3, 2), None)
    assert dict(layers) == {"weight": torch.Size([2, 3]), "bias": torch.Size([2])}
    assert layers.sizes == [6, 2]


def test_a_misspelled_pattern_gets_a_hint():
    with pytest.raises(ConfigError, match=r"'head\.wieght'.*Did you mean 'head\.weight'"):
        select_layers(Normed(), ["norm.*", "head.wieght"])


def test_a_model_of_norms_only_has_nothing_to_adapt():
    with pytest.raises(ConfigError, match="nothing to adapt: BatchNorm1d"):
        select_layers(nn.BatchNorm1d(2), None)


def test_an_empty_list_of_patterns_leaves_nothing_to_adapt():
    with pytest.raises(ConfigError, match="nothing to adapt"):
        select_layers(nn.Linear(2, 1), [])


def test_tied_weights_count_once():
    layers = select_layers(Tied(), None)
    assert list(layers) == ["encoder.weight", "encoder.bias", "decoder.bias"]
    assert len(list(LearnedInit(Tied()).meta_parameters())) == 3


# Learned


def test_a_learned_init_is_the_model_for_every_task():
    model = Normed().double()
    start = LearnedInit(model).start(support_of(3))
    assert start.num_tasks == 3
    for name in start:
        for task in range(3):
            assert torch.equal(start[name][task], model.get_parameter(name))


def test_a_learned_init_also_trains_shared_parameters():
    model = Normed()
    init = LearnedInit(model, adapt="head.*")
    assert set(init.layers) == {"head.weight", "head.bias"}
    assert set(init.shared()) == {n for n, _ in model.named_parameters()} - set(init.layers)
    assert list(init.meta_parameters()) == list(model.parameters())


# Fixed


def test_a_fixed_init_is_the_model_and_never_trained(make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    fixed = FixedInit(model)
    assert not list(fixed.meta_parameters())
    start, learned = fixed.start(support_of(2)), LearnedInit(model).start(support_of(2))
    assert torch.equal(start.flat, learned.flat)
    learner = Learner(model, init=fixed, rule=SGD(fixed.layers), loss=mse)
    assert not learner(episode).query_losses.requires_grad


def test_a_fixed_init_shares_constants():
    model = Normed()
    init = FixedInit(model, adapt="head.*")
    assert set(init.shared()) == {n for n, _ in model.named_parameters()} - set(init.layers)
    assert not any(tensor.requires_grad for tensor in init.shared().values())


def test_a_fixed_init_gives_no_gradient_but_lets_the_rule_learn(
    make_learner, make_mlp, make_episode
):
    learner = make_learner(make_mlp(), init="fixed", rule="learned")
    learner(make_episode()).query_losses.sum().backward()
    assert all(p.grad is None for p in learner.model.parameters())
    assert all(p.grad is not None and p.grad.any() for p in learner.rule.parameters())


# Attenuated


def make_gamma_one(init: Attenuated) -> None:
    last = [module for module in init.modules() if isinstance(module, nn.Linear)][-1]
    assert last.out_features == len(init.layers)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(100)


@pytest.mark.parametrize("order", ["second", "first"])
def test_attenuation_by_one_is_maml(make_mlp, make_episode, backend, order):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    attenuated = Attenuated(init).double()
    make_gamma_one(attenuated)
    rule = SGD(init.layers, learning_rate=0.1)
    results = []
    for start in (init, attenuated):
        learner = Learner(model, init=start, rule=rule, loss=mse, order=order)
        losses = learner(episode).query_losses
        grads = torch.autograd.grad(losses.sum(), list(model.parameters()))
        results.append([losses, *grads])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def plain_gamma(attenuated, gradients):
    first, last = (m for m in attenuated.attenuator.modules() if isinstance(m, nn.Linear))
    means = torch.stack([gradients[name].flatten(1).mean(1) for name in gradients], dim=1)
    return torch.sigmoid(last(torch.relu(first(means))))


@pytest.mark.parametrize("inner", [LearnedInit, FixedInit])
def test_each_layer_is_scaled_by_the_factor_of_its_task(make_mlp, randn, rng, inner):
    model = make_mlp()
    attenuated = Attenuated(inner(model), generator=rng).double()
    gradients = Params.of({name: randn(3, *shape) for name, shape in attenuated.layers.items()})
    start = attenuated.start(support_of(3, lambda _: gradients))
    gamma = plain_gamma(attenuated, gradients)
    assert 0 < gamma.min() < gamma.max() < 1
    for layer, name in enumerate(start):
        for task in range(3):
            expected = gamma[task, layer] * model.get_parameter(name)
            torch.testing.assert_close(start[name][task], expected, rtol=0, atol=1e-14)


def test_attenuation_of_a_fixed_init_trains_the_attenuator_only(make_mlp, make_episode, rng):
    model, episode = make_mlp(), make_episode()
    init = Attenuated(FixedInit(model), generator=rng).double()
    assert list(init.meta_parameters()) == list(init.attenuator.parameters())
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
    learner(episode).query_losses.sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(p.grad is not None and p.grad.any() for p in init.meta_parameters())


def test_attenuation_delegates_layers_and_shared_parameters(rng):
    model = Normed()
    inner = LearnedInit(model, adapt="head.*")
    init = Attenuated(inner, generator=rng)
    assert init.layers is inner.layers
    assert init.shared().keys() == inner.shared().keys()
    assert list(init.meta_parameters()) == [*model.parameters(), *init.attenuator.parameters()]


def test_the_outer_gradient_flows_through_the_attenuating_gradient(make_mlp, make_episode, rng):
    model, episode = make_mlp(), make_episode()
    init = Attenuated(LearnedInit(model), generator=rng).double()
    options = {"init": init, "rule": SGD(init.layers), "loss": mse, "num_steps": 0}
    weight = next(model.parameters())
    gradients = {}
    for order in ("second", "first"):
        adapted = adapt(model, episode.support_x, episode.support_y, order=order, **options)
        loss = mse(adapted.predict(episode.query_x), episode.query_y).sum()
        (gradients[order],) = torch.autograd.grad(loss, weight)
    assert (gradients["second"] - gradients["first"]).abs().max() > 1e-6


def test_frozen_parameters_are_adapted_only_if_named(randn) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    model[0].requires_grad_(False)
    assert list(LearnedInit(model).layers) == ["2.weight", "2.bias"]
    assert list(LearnedInit(model, adapt=["0.*"]).layers) == ["0.weight", "0.bias"]
    # In a model that is frozen entirely, freezing has no effect.
    model.requires_grad_(False)
    assert len(LearnedInit(model).layers) == 4
