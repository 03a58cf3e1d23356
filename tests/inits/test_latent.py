"""LEO's init and objective: latent codes of the classes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LatentHead, PrototypeHead
from alfa.learner import Learner
from alfa.objectives import LatentPenalties
from alfa.ops import cross_entropy
from alfa.rules import SGD
from alfa.types import Episode

WAY, SHOT = 3, 2
LABELS = torch.arange(WAY * SHOT) % WAY


@pytest.fixture
def learner(perturb, rng):
    model = perturb(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4)))
    init = LatentHead(model, adapt="head", num_latents=4, generator=rng)
    perturb(init, 0.2)
    rule = SGD(init.layers, learning_rate=0.1)
    return Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=2).double()


@pytest.fixture
def episode(randn):
    y = LABELS.expand(2, -1)
    return Episode(randn(2, WAY * SHOT, 3), y, randn(2, 5, 3), y[:, :5])


def plain_code(init, x):
    """Return mean and deviation of each class, as loops over all pairs."""
    x = x / x.norm(dim=1).mean()
    codes = x @ init.encoder.weight.T
    layers = [init.relation[i].weight for i in (0, 2, 4)]
    pairs = torch.zeros(len(x), 8, dtype=torch.float64)
    for i in range(len(x)):
        for j in range(len(x)):
            hidden = torch.cat([codes[i], codes[j]])
            hidden = F.relu(layers[1] @ F.relu(layers[0] @ hidden))
            pairs[i] = pairs[i] + layers[2] @ hidden / len(x)
    means = torch.stack([pairs[label == LABELS].mean(0) for label in range(WAY)])
    return means[:, :4], means[:, 4:]


def plain_adaptation(learner, x, queries):
    """LEO without variance: MAML on the codes, and then on the last layer."""
    init, body = learner.init, learner.model[:2]
    x, decoder = body(x), init.decoder.weight[:6]
    norm = x.norm(dim=1).mean()
    z, _ = plain_code(init, x)
    for _ in range(5):
        loss = F.cross_entropy(x / norm @ (z @ decoder.T).T, LABELS, reduction="sum") / SHOT
        (gradient,) = torch.autograd.grad(loss, z, create_graph=True)
        z = z - init.rates * gradient
    w, b = z @ decoder.T / norm, torch.zeros(WAY, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        loss = F.cross_entropy(x @ w.T + b, LABELS)
        of_w, of_b = torch.autograd.grad(loss, [w, b], create_graph=True)
        w, b = w - 0.1 * of_w, b - 0.1 * of_b
    return body(queries) @ w.T + b


def test_means_are_latent_maml_with_its_meta_gradient(learner, episode) -> None:
    found = learner(episode)
    expected = torch.stack(
        [plain_adaptation(learner, episode.support_x[t], episode.query_x[t]) for t in range(2)]
    )
    torch.testing.assert_close(found.outputs, expected)
    trained = [learner.init.encoder.weight, learner.init.rates, learner.init.decoder.weight]
    loss = cross_entropy(expected, episode.query_y).sum()
    ours = torch.autograd.grad(found.query_losses.sum(), trained)
    for own, other in zip(ours, torch.autograd.grad(loss, trained), strict=True):
        torch.testing.assert_close(own, other)


def test_without_variance_samples_are_means(learner, episode, monkeypatch) -> None:
    expected = learner(episode).outputs
    objective = LatentPenalties(divergence=0.0)
    drawn = objective(learner, episode, progress=0.3).outputs
    assert not torch.allclose(drawn, expected, atol=1e-3)
    monkeypatch.setattr(LatentHead, "_deviation", lambda self, raw, offset: raw * 0 + 1e-10)
    drawn = objective(learner, episode, progress=0.3).outputs
    torch.testing.assert_close(drawn, expected, rtol=1e-7, atol=1e-7)


def test_samples_have_the_given_mean_and_deviation(learner, episode) -> None:
    init = learner.init
    codes = []
    for seed in range(400):
        one = init.sampled(seed)
        Learner(learner.model, init=one, rule=learner.rule, loss=cross_entropy, num_steps=0)(
            episode
        )
        codes.append(one.codes.first[0].detach())
    mean, raw = plain_code(init, learner.model[:2](episode.support_x[0]))
    deviation = (raw.exp() - 1).clamp_min(1e-10)
    found = torch.stack(codes)
    torch.testing.assert_close(
        found.mean(0), mean, rtol=0, atol=float(deviation.detach().max()) / 4
    )
    torch.testing.assert_close(found.std(0), deviation, rtol=0.15, atol=1e-8)
    assert init.codes is None


def test_penalties_are_added(learner, episode) -> None:
    options = {"divergence": 0.3, "encoder": 0.5, "squared_norm": 0.01, "orthogonality": 0.2}
    outcome = LatentPenalties(**options)(learner, episode, progress=0.3)
    init = learner.init.sampled(int(0.3 * 2**53))
    Learner(learner.model, init=init, rule=learner.rule, loss=cross_entropy, num_steps=0)(episode)
    weights = [init.encoder.weight, *(init.relation[i].weight for i in (0, 2, 4))]
    rows = init.decoder.weight.T
    norms = rows.norm(dim=1)
    correlations = rows @ rows.T / norms[:, None] / norms
    squares = sum(w.square().sum() for w in [*weights, rows]) / 2
    apart = (correlations - torch.eye(4, dtype=torch.float64)).square().mean()
    for task in range(2):
        mean, raw = plain_code(init, learner.model[:2](episode.support_x[task]))
        deviation, z = (raw.exp() - 1).clamp_min(1e-10), init.codes.first[task]
        q = torch.distributions.Normal(mean, deviation)
        prior = torch.distributions.Normal(torch.zeros_like(z), torch.ones_like(z))
        divergence = (q.log_prob(z) - prior.log_prob(z)).mean()
        moved = (init.codes.last[task] - z).square().mean()
        expected = 0.3 * divergence + 0.5 * moved + 0.01 * squares + 0.2 * apart
        torch.testing.assert_close(outcome.losses[task], outcome.query_losses[task] + expected)


def test_faults_are_errors(learner, episode) -> None:
    init = PrototypeHead(learner.model)
    rule = SGD(init.layers)
    other = Learner(learner.model, init=init, rule=rule, loss=cross_entropy)
    with pytest.raises(ConfigError, match="needs the init 'latent-head', got PrototypeHead"):
        LatentPenalties()(other, episode, progress=0.0)
    with pytest.raises(ConfigError, match="`num_latents` must be at least 1, got 0"):
        LatentHead(learner.model, num_latents=0)
    with pytest.raises(ConfigError, match="`encoder` must be at least 0, got -1"):
        LatentPenalties(encoder=-1)
