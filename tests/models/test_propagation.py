"""TPN's label propagation against NumPy and plain loops."""

import numpy as np
import pytest
import torch

from alfa.build import build_learner
from alfa.config import parse_experiment
from alfa.data import Signature
from alfa.errors import ConfigError
from alfa.models import LabelPropagation

WAY = 3
Y = torch.tensor([0, 1, 2, 2, 0, 1])


def outputs_of(head, z, query):
    fitted = {name: tensor[0] for name, tensor in head.fit(z[None], Y[None], WAY).items()}
    return torch.func.functional_call(head, fitted, (query,)).detach().numpy()


def propagated(nodes: np.ndarray, sigma: np.ndarray, *, num_neighbors: int, alpha: float):
    """Return the rows of F of the queries."""
    count = len(nodes)
    w = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            difference = nodes[i] / sigma[i] - nodes[j] / sigma[j]
            w[i, j] = np.exp(-np.mean(difference**2) / 2)
    nearest = [set(np.argsort(-row)[:num_neighbors]) for row in w]
    for i in range(count):
        for j in range(count):
            if j not in nearest[i] and i not in nearest[j]:
                w[i, j] = 0
    d = np.diag(w.sum(1) ** -0.5)
    y = np.vstack([np.eye(WAY)[Y], np.zeros((count - len(Y), WAY))])
    return (np.linalg.inv(np.eye(count) - alpha * d @ w @ d) @ y)[len(Y) :]


@pytest.mark.parametrize("num_neighbors", [2, 4, 20])
@pytest.mark.parametrize("alpha", [0.5, 0.99])
def test_outputs_are_those_of_numpy(randn, perturb, num_neighbors, alpha) -> None:
    torch.manual_seed(0)
    options = {"num_neighbors": num_neighbors, "alpha": alpha, "filters": 3, "hidden": 4}
    head = perturb(LabelPropagation((2, 5, 5), 5, **options))
    z, query = randn(6, 50), randn(5, 50)
    nodes = torch.cat([z, query])
    with torch.no_grad():
        sigma = head.sigma(nodes.view(-1, 2, 5, 5)).numpy()
    assert np.abs(sigma).min() > 0.01
    wanted = propagated(nodes.numpy(), sigma, num_neighbors=num_neighbors, alpha=alpha)
    np.testing.assert_allclose(outputs_of(head, z, query), wanted, rtol=1e-8, atol=1e-10)


def test_the_scale_is_that_of_two_blocks_and_two_layers(randn, perturb) -> None:
    head = perturb(LabelPropagation((2, 5, 5), 5, filters=3, hidden=4))
    x = randn(7, 2, 5, 5)
    p = list(head.sigma.parameters())
    functional = torch.nn.functional
    a = x
    for conv, gamma, beta in (p[:3], p[3:6]):
        a = functional.conv2d(a, conv, padding=1)
        a = functional.batch_norm(a, None, None, gamma, beta, training=True).relu()
        a = functional.max_pool2d(a, 2, padding=1)
    assert a.shape == (7, 1, 2, 2)
    wanted = functional.linear(functional.linear(a.flatten(1), p[6], p[7]).relu(), p[8], p[9])
    torch.testing.assert_close(head.sigma(x), wanted)


def test_a_query_depends_on_the_others(randn, perturb) -> None:
    head = perturb(LabelPropagation((2, 5, 5), 5, filters=3))
    assert head.is_transductive
    z, query = randn(6, 50), randn(5, 50)
    order = [4, 2, 0, 1, 3]
    outputs = outputs_of(head, z, query)
    np.testing.assert_allclose(outputs_of(head, z, query[order]), outputs[order], rtol=1e-8)
    assert not np.allclose(outputs_of(head, z, query[:1]), outputs[:1])


@pytest.mark.parametrize("shape", [(6,), (6, 1, 1), (3, 2, 7)])
def test_features_may_have_any_shape(randn, shape) -> None:
    head = LabelPropagation(shape, 5).double()
    size = int(np.prod(shape))
    assert outputs_of(head, randn(6, size), randn(4, size)).shape == (4, WAY)


@pytest.mark.parametrize("alpha", [-0.1, 1.0])
def test_alpha_must_be_below_one(alpha) -> None:
    with pytest.raises(ConfigError, match=rf"`alpha` must be at least 0 and below 1, got {alpha}"):
        LabelPropagation((4,), 2, alpha=alpha)


def test_a_task_has_no_model_that_classifies_single_images(randn) -> None:
    content = {
        "tasks": {"name": "images", "size": 16},
        "model": {"name": "conv4", "filters": 4},
        "head": {"name": "label-propagation"},
        "init": {"name": "task-head", "adapt": ["head.support", "head.labels"]},
        "inner": {"num_steps": 0},
    }
    learner = build_learner(parse_experiment(content), Signature((1, 16, 16), 5, "cross_entropy"))
    x = randn(1, 6, 1, 16, 16).float()
    adapted = learner.adapt(x, Y[None], order="none")
    with pytest.raises(ConfigError, match="classifies the queries of a task together"):
        adapted.frozen(x[0])
