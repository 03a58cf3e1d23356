"""Relation networks against plain loops."""

import math

import numpy as np
import pytest
import torch

from alfa.errors import ConfigError
from alfa.inits import TaskHead
from alfa.learner import Learner
from alfa.models import Conv4, Headed, Relation
from alfa.ops import squared_one_hot
from alfa.rules import SGD
from alfa.types import Episode

WAY = 2


def convolved(x: np.ndarray, weight: np.ndarray, padding: int) -> np.ndarray:
    """Return the cross-correlation ``[filter, row, column]`` of maps with 3 x 3 filters."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    height, width = x.shape[1] - 2, x.shape[2] - 2
    out = np.zeros((len(weight), height, width))
    for number, kernel in enumerate(weight):
        for row in range(height):
            for column in range(width):
                window = x[:, row : row + 3, column : column + 3]
                out[number, row, column] = np.sum(kernel * window)
    return out


def pooled(x: np.ndarray) -> np.ndarray:
    height, width = x.shape[1] // 2, x.shape[2] // 2
    return x[:, : 2 * height, : 2 * width].reshape(-1, height, 2, width, 2).max((2, 4))


def scores_of(head: Relation, pairs: list[np.ndarray], padding: int, by: list[np.ndarray]):
    """Return the scores of pairs, which batch norm normalizes by the statistics of `by`."""
    parts = list(head.comparator)
    for conv, norm in ((parts[0], parts[1]), (parts[4], parts[5])):
        weight = conv.weight.detach().numpy()
        pairs = [convolved(x, weight, padding) for x in pairs]
        by = [convolved(x, weight, padding) for x in by]
        values = np.stack(by).transpose(1, 0, 2, 3).reshape(len(weight), -1)
        mean, var = values.mean(1)[:, None, None], values.var(1)[:, None, None]
        gamma, beta = (p.detach().numpy()[:, None, None] for p in norm.parameters())
        pairs, by = (
            [pooled(np.maximum(gamma * (x - mean) / np.sqrt(var + 1e-5) + beta, 0)) for x in some]
            for some in (pairs, by)
        )
    weights = [p.detach().numpy() for p in (*parts[9].parameters(), *parts[11].parameters())]
    scores = []
    for x in pairs:
        hidden = np.maximum(weights[0] @ x.ravel() + weights[1], 0)
        scores.append(1 / (1 + math.exp(-(weights[2] @ hidden + weights[3]).item())))
    return scores


@pytest.mark.parametrize(("side", "padding"), [(5, 1), (10, 0)])
def test_scores_are_those_of_loops(randn, perturb, side, padding) -> None:
    head = perturb(Relation((2, side, side), 5, filters=3, hidden=4, padding=padding))
    z, y, query = randn(5, 2 * side**2), torch.tensor([0, 1, 1, 0, 1]), randn(3, 2 * side**2)
    fitted = {name: tensor[0] for name, tensor in head.fit(z[None], y[None], WAY).items()}
    found = torch.func.functional_call(head, fitted, (query,))
    maps = z.numpy().reshape(5, 2, side, side)
    sums = [maps[[0, 3]].sum(0), maps[[1, 2, 4]].sum(0)]
    queries = query.numpy().reshape(3, 2, side, side)
    pairs = [np.concatenate([own, q]) for q in queries for own in sums]
    wanted = np.reshape(scores_of(head, pairs, padding, pairs), (3, WAY))
    np.testing.assert_allclose(found.detach(), wanted, rtol=1e-9)


@pytest.fixture
def learner(perturb) -> Learner:
    backbone = Conv4((1, 12, 12), 5, filters=2, num_blocks=1)
    model = perturb(Headed(backbone, Relation(backbone.feature_shape, 5, filters=3, hidden=4)))
    init = TaskHead(model, adapt="head.sums")
    options = {"loss": squared_one_hot, "num_steps": 0, "batch_norm": "inductive"}
    return Learner(model, init=init, rule=SGD(init.layers), **options)


@pytest.fixture
def episode(randn) -> Episode:
    y = torch.arange(WAY).repeat(2, 3)
    return Episode(randn(2, 6, 1, 12, 12), y, randn(2, 4, 1, 12, 12), y[:, :4])


def test_inductive_batch_norm_uses_the_pairs_of_the_support_set(learner, episode) -> None:
    assert learner.model.has_batch_norm
    found = learner(episode).outputs
    backbone, head = learner.model.backbone, learner.model.head
    for task in range(2):
        body = learner.adapt(episode.support_x, episode.support_y).frozen(
            episode.support_x[task], task=task
        )[0]
        support, queries = (
            body(x[task]).numpy().reshape(-1, *backbone.feature_shape)
            for x in (episode.support_x, episode.query_x)
        )
        sums = [support[own::WAY].sum(0) for own in range(WAY)]
        pairs, by = (
            [np.concatenate([own, q]) for q in some for own in sums] for some in (queries, support)
        )
        wanted = np.reshape(scores_of(head, pairs, 1, by), (4, WAY))
        np.testing.assert_allclose(found[task].detach(), wanted, rtol=1e-9)


def test_a_single_task_as_a_module_classifies_as_inductive_batch_norm_does(
    learner, episode
) -> None:
    adapted = learner.adapt(episode.support_x, episode.support_y, order="none")
    wanted = adapted.predict(episode.query_x)
    for task in range(2):
        module = adapted.frozen(episode.support_x[task], task=task)
        alone = torch.cat([module(x[None]) for x in episode.query_x[task]])
        torch.testing.assert_close(alone, wanted[task], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "padding", "smallest"),
    [((16, 1, 1), 1, 4), ((16, 3, 4), 1, 4), ((64,), 1, 4), ((16, 9, 9), 0, 10)],
)
def test_features_that_are_no_maps_are_an_error(shape, padding, smallest) -> None:
    with pytest.raises(ConfigError, match=rf"at least {smallest} x {smallest}, but .*num_pools"):
        Relation(shape, 5, padding=padding)


@pytest.mark.parametrize(("side", "padding"), [(4, 1), (10, 0)])
def test_the_smallest_maps_have_scores(randn, side, padding) -> None:
    head = Relation((2, side, side), 5, padding=padding).double()
    assert head(randn(3, 2 * side**2)).shape == (3, 5)
