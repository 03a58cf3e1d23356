"""Batch norm: the statistics that normalize a query, and the options that select them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alfa.cli.main import main
from alfa.config import compose
from alfa.data import Tasks
from alfa.errors import ConfigError
from alfa.evaluation import evaluate
from alfa.inits import Attenuated, FixedInit, LearnedInit
from alfa.learner import Learner, adapt
from alfa.models import Conv4, ResNet12
from alfa.ops import cross_entropy, mse
from alfa.rules import ALFA, SGD
from alfa.runs import Run
from alfa.training import train_run
from alfa.types import Episode

TINY = (
    "outer.num_iterations=2",
    "outer.validate_every=2",
    "outer.num_val_tasks=2",
    "test.num_tasks=2",
    "model.hidden=[4]",
)


def by_hand(w: Mapping[str, Tensor], support: Tensor, query: Tensor) -> Tensor:
    """Apply a 4-CONV of two blocks to queries, normalized by the support set's statistics."""
    x = torch.cat([support, query])
    for block in (1, 2):
        z = F.conv2d(x, w[f"conv{block}.weight"], w[f"conv{block}.bias"], padding=1)
        var, mean = torch.var_mean(z[: len(support)], (0, 2, 3), correction=0, keepdim=True)
        gamma, beta = (w[f"norm{block}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
        normed = (z - mean) / (var + 1e-5).sqrt() * gamma + beta
        x = F.max_pool2d(F.leaky_relu(normed, 0.01), 2)
    return F.linear(x.flatten(1), w["linear.weight"], w["linear.bias"])[len(support) :]


@pytest.fixture
def conv4(perturb, rng):
    def make(shape=(2, 9, 8)):
        model = perturb(Conv4(shape, 3, filters=3, num_blocks=2, generator=rng), 0.3)
        with torch.no_grad():
            model.norm2.weight[1] = -0.6
        return model

    return make


@pytest.fixture
def episode(randn):
    y = torch.arange(3).repeat(2).expand(2, -1)
    queries = torch.arange(3).repeat(3).expand(2, -1)
    return Episode(randn(2, 6, 2, 9, 8), y, randn(2, 9, 2, 9, 8), queries)


RULES = {
    "sgd": lambda layers: SGD(layers, learning_rate=0.1),
    "alfa": lambda layers: ALFA(
        layers, num_steps=2, state_gradient="full", generator=torch.Generator().manual_seed(1)
    ),
}
INITS = {
    "learned": LearnedInit,
    "fixed": FixedInit,
    "attenuated": lambda model: Attenuated(
        LearnedInit(model), generator=torch.Generator().manual_seed(2)
    ).double(),
}


def learner_of(model, rule="sgd", init="learned", **options):
    start = INITS[init](model)
    made = RULES[rule](start.layers).double()
    options = {"loss": cross_entropy, "num_steps": 2, "batch_norm": "inductive", **options}
    return Learner(model, init=start, rule=made, **options)


def gradients(loss, learner):
    parameters = list(learner.meta_parameters())
    if not parameters:
        return ()
    return torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


# Inductive batch norm


@pytest.mark.parametrize("order", ["second", "first"])
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("rule", RULES)
def test_queries_are_normalised_as_the_support_set_by_hand(conv4, episode, rule, init, order):
    model = conv4()
    learner = learner_of(model, rule, init, order=order)
    outcome = learner(episode)
    twin = learner_of(model, rule, init, order=order, batch_norm="transductive")
    adapted = twin.adapt(episode.support_x, episode.support_y)
    outputs = []
    for task in range(2):
        own = {name: tensor[task] for name, tensor in adapted.params.items()}
        w = {**adapted.shared, **own}
        outputs.append(by_hand(w, episode.support_x[task], episode.query_x[task]))
    expected = torch.stack(outputs)
    losses = cross_entropy(expected, episode.query_y)
    close(outcome.outputs, expected)
    close(outcome.query_losses, losses)
    ours = gradients(outcome.query_losses.mean(), learner)
    for grad, wanted in zip(ours, gradients(losses.mean(), twin), strict=True):
        close(grad, wanted)


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_it_means_the_same_however_it_is_computed(conv4, episode, over_tasks, memory):
    model = conv4()
    plain, other = learner_of(model), learner_of(model, over_tasks=over_tasks, memory=memory)
    expected, outcome = plain(episode), other(episode)
    close(outcome.outputs, expected.outputs)
    ours = gradients(outcome.query_losses.mean(), other)
    for grad, wanted in zip(ours, gradients(expected.query_losses.mean(), plain), strict=True):
        close(grad, wanted)


def test_adaptation_itself_is_the_same(conv4, episode):
    model = conv4()
    inductive = learner_of(model)(episode).adapted
    transductive = learner_of(model, batch_norm="transductive")(episode).adapted
    assert torch.equal(inductive.params.flat, transductive.params.flat)
    assert torch.equal(inductive.support_losses, transductive.support_losses)


@pytest.mark.parametrize("kind", ["conv4", "resnet12"])
def test_a_prediction_depends_on_the_other_queries_in_transductive_only(
    conv4, perturb, rng, randn, episode, kind
):
    model, x = conv4(), episode
    if kind == "resnet12":
        model = perturb(ResNet12((2, 16, 16), 3, filters=[2, 2, 2, 2], generator=rng))
        x = Episode(randn(2, 6, 2, 16, 16), episode.support_y, randn(2, 9, 2, 16, 16), None)
    for batch_norm, independent in (("inductive", True), ("transductive", False)):
        learner = learner_of(model, batch_norm=batch_norm)
        adapted = learner.adapt(x.support_x, x.support_y, order="none")
        alone, together = adapted.predict(x.query_x[:, :2]), adapted.predict(x.query_x)[:, :2]
        assert torch.allclose(alone, together, rtol=0, atol=1e-12) is independent


def test_a_single_query_will_do(conv4, episode):
    adapted = learner_of(conv4()).adapt(episode.support_x, episode.support_y)
    single = [adapted.predict(episode.query_x[:, place : place + 1]) for place in range(9)]
    close(torch.cat(single, dim=1), adapted.predict(episode.query_x))


# Models that do not support it


def test_a_perceptron_refuses_it(make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    sentence = (
        r"`batch_norm` is 'inductive', but MLP has no batch norm that uses.*use another model"
    )
    with pytest.raises(ConfigError, match=sentence):
        learner_of(model, loss=mse)
    init = LearnedInit(model)
    options = {"init": init, "rule": SGD(init.layers), "loss": mse, "batch_norm": "inductive"}
    with pytest.raises(ConfigError, match=sentence):
        adapt(model, episode.support_x, episode.support_y, **options)


def test_a_module_with_running_statistics_only_refuses_it():
    norm = nn.BatchNorm2d(2).eval()
    model = nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(ConfigError, match=r"Sequential has no batch norm that uses the statistics"):
        learner_of(model.double())


def test_a_misspelt_one_gets_a_hint(conv4):
    with pytest.raises(ConfigError, match=r"`batch_norm` is 'inductve'.*Did you mean 'inductive'"):
        learner_of(conv4(), batch_norm="inductve")


# The options


class Images(Tasks):
    """Random images of random classes."""

    input_shape, num_outputs, loss = (2, 9, 8), 3, "cross_entropy"

    def episode(self, first, *, num_tasks, split="train", seed=0):
        generator = torch.Generator().manual_seed(first)
        x = torch.randn(num_tasks, 12, *self.input_shape, generator=generator, dtype=torch.float64)
        y = torch.arange(3).repeat(4).expand(num_tasks, -1)
        return Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


@pytest.mark.parametrize("batch_norm", ["transductive", "inductive"])
def test_an_evaluation_says_which_it_was(conv4, batch_norm):
    found = evaluate(learner_of(conv4(), batch_norm=batch_norm), Images(), num_tasks=2)
    assert found.batch_norm == batch_norm
    assert found.as_dict()["batch_norm"] == batch_norm


def test_the_two_evaluations_differ(conv4):
    model = conv4()
    inductive, transductive = (
        evaluate(learner_of(model, batch_norm=batch_norm), Images(), num_tasks=2).loss
        for batch_norm in ("inductive", "transductive")
    )
    assert abs(inductive - transductive) > 1e-6


@pytest.mark.parametrize(
    ("layer", "expected"), [(nn.BatchNorm2d(2), "transductive"), (nn.Identity(), None)]
)
def test_an_evaluation_of_any_module_says_whether_it_has_one(layer, expected):
    model = nn.Sequential(nn.Conv2d(2, 2, 3), layer, nn.Flatten(), nn.Linear(2 * 7 * 6, 3))
    learner = learner_of(model.double(), batch_norm="transductive")
    assert evaluate(learner, Images(), num_tasks=2).batch_norm == expected


def test_an_evaluation_of_a_perceptron_says_nothing(make_mlp):
    learner = learner_of(make_mlp(2 * 9 * 8, 3), batch_norm="transductive")
    assert evaluate(learner, Images(), num_tasks=2).batch_norm is None


# The configuration and the command line


def test_a_configuration_that_cannot_be_followed_leaves_no_folder_behind(tmp_path):
    experiment = compose("sinusoid", method="maml", overrides=[*TINY, "inner.batch_norm=inductive"])
    with pytest.raises(ConfigError, match=r"'inductive', but MLP has no batch norm") as caught:
        train_run(Run.new(tmp_path / "run", experiment))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_misspelt_one_in_a_configuration_is_named():
    sentence = r"inner\.batch_norm is 'inductve', but must be 'transductive' or 'inductive'"
    with pytest.raises(ConfigError, match=sentence) as caught:
        compose("sinusoid", method="maml", overrides=[*TINY, "inner.batch_norm=inductve"])
    assert "\n" not in str(caught.value)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A complete run of a perceptron."""
    threads = torch.get_num_threads()
    monkeypatch.setenv("COLUMNS", "200")
    train_run(Run.new(tmp_path / "run", compose("sinusoid", method="maml", overrides=TINY)))
    yield tmp_path / "run"
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("inductive", "`--batch-norm` is 'inductive', but MLP has no batch norm"),
        ("inductve", "Did you mean 'inductive'?"),
    ],
)
def test_an_evaluation_that_cannot_follow_ends_in_one_sentence(run, capsys, given, sentence):
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", str(run), "--batch-norm", given])
    out, err = capsys.readouterr()
    assert caught.value.code == 2
    assert out == ""
    assert err.startswith("alfa: ")
    assert sentence in err
    assert err.count("\n") == 1
