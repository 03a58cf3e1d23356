import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.ops import mse
from alfa.rules import RULES
from alfa.types import Episode


class Norm1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


class Norm2d(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(12, 1)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.conv(x))).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.last = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.gru(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.last = nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.encoder(x).mean(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(3, 3), nn.Linear(3, 3)
        self.decode.weight = self.encode.weight
        self.last = nn.Linear(3, 1)

    def forward(self, x):
        return self.last(self.decode(torch.tanh(self.encode(x))))


INPUTS = {Norm1d: (3,), Norm2d: (1, 4, 4), Recurrent: (5, 3), Transformer: (5, 4), Tied: (3,)}
WAYS = [(module, "loop") for module in INPUTS] + [
    (module, "stack") for module in (Norm1d, Norm2d, Tied)
]


@pytest.fixture
def make_case(randn, rng):
    def make(module):
        model = module().double()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
                parameter.copy_(start + 0.4 * randn(*parameter.shape))
        data = [randn(2, num, *shape) for num in (6, 5) for shape in (INPUTS[module], (1,))]
        return model, Episode(*data)

    return make


def learner_of(model, rule, over_tasks):
    init = LearnedInit(model)
    return Learner(model, init=init, rule=rule(init.layers), loss=mse, over_tasks=over_tasks)


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize(("module", "over_tasks"), WAYS)
def test_every_rule_adapts_any_module(make_case, make_rule, module, over_tasks, rule):
    model, episode = make_case(module)
    learner = learner_of(
        model, lambda layers: make_rule(rule, layers, **five_steps(rule)), over_tasks
    )
    outcome = learner(episode)
    assert outcome.query_losses.isfinite().all()
    assert not torch.equal(outcome.adapted.params.flat[0], outcome.adapted.params.flat[1])
    parameters = list(learner.meta_parameters())
    grads = torch.autograd.grad(outcome.query_losses.sum(), parameters, materialize_grads=True)
    assert all(grad.isfinite().all() for grad in grads)
    assert all(grad.any() for grad in grads[: len(list(model.parameters()))])


def five_steps(rule):
    return {"num_steps": 5} if "num_steps" in RULES.options(rule) else {}


@pytest.mark.parametrize(("module", "over_tasks"), WAYS)
def test_gradient_descent_lowers_the_support_loss(make_case, make_rule, module, over_tasks):
    model, episode = make_case(module)
    learner = learner_of(model, lambda layers: make_rule("sgd", layers), over_tasks)
    losses = learner(episode, num_steps=8).adapted.support_losses
    assert (losses[1:] < losses[:-1]).all()


@pytest.mark.parametrize(("module", "over_tasks"), WAYS)
def test_adaptation_is_that_of_torch_on_a_copy(make_case, make_rule, module, over_tasks):
    model, episode = make_case(module)
    learner = learner_of(model, lambda layers: make_rule("sgd", layers), over_tasks)
    adapted = learner.adapt(episode.support_x, episode.support_y)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    for task in range(2):
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(
            [model.get_parameter(name) for name in learner.init.layers], lr=0.01
        )
        for _ in range(5):
            optimizer.zero_grad()
            F.mse_loss(model(episode.support_x[task]), episode.support_y[task]).backward()
            optimizer.step()
        for name in learner.init.layers:
            wanted = model.get_parameter(name).detach()
            torch.testing.assert_close(
                adapted.params[name][task].detach(), wanted, rtol=0, atol=1e-10
            )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
@pytest.mark.parametrize("module", [Norm1d, Norm2d])
def test_running_statistics_never_change(make_case, make_rule, module, over_tasks, training):
    model, episode = make_case(module)
    model.train(training)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert "norm.running_mean" in before
    learner = learner_of(model, lambda layers: make_rule("sgd", layers), over_tasks)
    learner(episode).query_losses.sum().backward()
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])


@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_running_statistics_are_used_in_evaluation_mode(make_case, make_rule, over_tasks):
    model, episode = make_case(Norm1d)
    learner = learner_of(model, lambda layers: make_rule("sgd", layers), over_tasks)
    model.eval()
    alone = learner.adapt(episode.support_x, episode.support_y).predict(episode.query_x[:, :1])
    together = learner(episode).outputs[:, :1]
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
    model.train()
    assert (learner(episode).outputs[:, :1] - together).abs().max() > 1e-6


class Dropping(Norm1d):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(super().forward(x))


def test_a_learner_in_evaluation_mode_drops_nothing_and_normalises_as_before(make_case, make_rule):
    # The same weights, with and without dropout.
    (plain, episode), model = make_case(Norm1d), Dropping().double()
    model.load_state_dict(plain.state_dict())
    learners = [
        learner_of(each, lambda layers: make_rule("sgd", layers), "loop") for each in (plain, model)
    ]
    expected = learners[0](episode).outputs
    assert (learners[1](episode).outputs - expected).abs().max() > 1e-3
    assert learners[1].eval() is learners[1]
    assert not learners[1].training
    torch.testing.assert_close(learners[1](episode).outputs, expected, rtol=0, atol=1e-12)
    assert learners[1].train().training
    assert model.drop.training
    # A layer that uses its running statistics continues to do so in both modes.
    model.norm.eval()
    assert not any(learners[1].train(mode).model.norm.training for mode in (True, False))


@pytest.mark.parametrize(
    "wrong", [{"order": "fisrt"}, {"memory": "recompte"}, {"over_tasks": "no"}, {"batch_norm": "x"}]
)
def test_a_learner_is_not_made_with_options_that_are_none(make_case, make_rule, wrong):
    model, _ = make_case(Norm1d)
    init = LearnedInit(model)
    with pytest.raises(ConfigError, match=f"`{next(iter(wrong))}` is '.*', which is not one of"):
        Learner(model, init=init, rule=make_rule("sgd", init.layers), loss=mse, **wrong)


def test_tied_weights_are_adapted_together(make_case, make_rule):
    model, episode = make_case(Tied)
    learner = learner_of(model, lambda layers: make_rule("sgd", layers), "loop")
    adapted = learner.adapt(episode.support_x, episode.support_y)
    assert "decode.weight" not in adapted.params
    weight = adapted.params["encode.weight"][0].detach()
    with torch.no_grad():
        for name in adapted.params:
            model.get_parameter(name).copy_(adapted.params[name][0])
    assert torch.equal(model.decode.weight, weight)
    expected = model(episode.query_x[0])
    torch.testing.assert_close(adapted.predict(episode.query_x)[0], expected, rtol=0, atol=1e-12)
