"""Meta-Curvature against explicit matrices."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.ops import cross_entropy, mse
from alfa.rules import SGD, MetaCurvature
from alfa.types import Episode, Params

SHAPES = {
    "conv": (3, 2, 2, 3),
    "conv1d": (3, 2, 4),
    "linear": (4, 5),
    "bias": (4,),
    "scale": (),
}


@pytest.fixture
def rule(perturb):
    return perturb(MetaCurvature({name: torch.Size(shape) for name, shape in SHAPES.items()}), 0.5)


def explicit(curvature):
    """Return the matrix that maps a flattened gradient to the flattened direction."""
    own = dict(curvature.named_parameters())
    if "diagonal" in own:
        return torch.diag(own["diagonal"].reshape(-1))
    matrix = torch.kron(own["M_o"], own["M_i"])
    return torch.kron(matrix, own["M_f"]) if "M_f" in own else matrix


def test_the_direction_is_a_product_with_the_kronecker_matrix(rule, randn):
    grads = Params.of({name: randn(3, *shape) for name, shape in SHAPES.items()})
    direction = rule.rates(0, grads, grads).direction
    for curvature, (name, shape) in zip(rule.curvatures, SHAPES.items(), strict=True):
        matrix = explicit(curvature)
        assert matrix.shape == (torch.Size(shape).numel(),) * 2
        for task in range(3):
            expected = (matrix @ grads[name][task].reshape(-1)).reshape(shape)
            torch.testing.assert_close(direction[name][task], expected, rtol=0, atol=1e-12)


def test_the_number_of_parameters_is_that_of_the_matrices(rule):
    counts = [sum(p.numel() for p in curvature.parameters()) for curvature in rule.curvatures]
    assert counts == [3**2 + 2**2 + 6**2, 3**2 + 2**2 + 4**2, 4**2 + 5**2, 4, 1]


def test_it_starts_as_gradient_descent(make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    flats = []
    for kind in (MetaCurvature, SGD):
        rule = kind(init.layers, learning_rate=0.2).double()
        learner = Learner(model, init=init, rule=rule, loss=mse)
        flats.append(learner(episode).adapted.params.flat)
    torch.testing.assert_close(*flats, rtol=0, atol=1e-12)


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_outer_gradients_equal_those_of_explicit_matrices(perturb, randn, memory):
    convolution, linear = nn.Conv2d(1, 2, 3), nn.Linear(8, 2)
    model = perturb(nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), linear))
    init = LearnedInit(model)
    rule = perturb(MetaCurvature(init.layers, learning_rate=0.2), 0.3)
    y = torch.arange(2).repeat(2).expand(2, -1)
    episode = Episode(randn(2, 4, 1, 4, 4), y, randn(2, 4, 1, 4, 4), y)
    learner = Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=2, memory=memory)
    loss = learner(episode).query_losses.mean()
    twin = torch.stack([plain_query_loss(model, rule, episode, t) for t in range(2)]).mean()
    torch.testing.assert_close(loss, twin, rtol=0, atol=1e-11)
    leaves = list(learner.meta_parameters())
    wanted = torch.autograd.grad(twin, leaves)
    actual = torch.autograd.grad(loss, leaves)
    assert all(bool(grad.any()) for grad in wanted)
    for one, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def plain_query_loss(model, rule, episode, task):
    """Compute one task's query loss after two steps with torch and explicit matrices."""
    theta = dict(model.named_parameters())
    adapted = list(rule.layers)
    for _ in range(2):
        outputs = torch.func.functional_call(model, theta, (episode.support_x[task],))
        loss = F.cross_entropy(outputs, episode.support_y[task])
        grads = torch.autograd.grad(loss, [theta[name] for name in adapted], create_graph=True)
        for name, grad, curvature in zip(adapted, grads, rule.curvatures, strict=True):
            direction = (explicit(curvature) @ grad.reshape(-1)).reshape(grad.shape)
            theta = {**theta, name: theta[name] - 0.2 * direction}
    outputs = torch.func.functional_call(model, theta, (episode.query_x[task],))
    return F.cross_entropy(outputs, episode.query_y[task])


def test_a_learning_rate_must_be_positive():
    with pytest.raises(ConfigError, match=r"`learning_rate` must be greater than 0, got 0\."):
        MetaCurvature({"w": torch.Size([2])}, learning_rate=0)
