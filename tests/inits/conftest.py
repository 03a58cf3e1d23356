"""A small network and tasks, whose features NumPy can compute."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from alfa.inits import Init
from alfa.learner import Learner
from alfa.models import MLP
from alfa.ops import cross_entropy
from alfa.rules import SGD
from alfa.types import Episode

WAY = 3


@pytest.fixture
def network(make_mlp) -> MLP:
    return make_mlp(num_in=4, num_out=2, hidden=[6])


@pytest.fixture
def classes(randn) -> Episode:
    """Two tasks of three classes with 3, 2, and 4 support examples."""
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 2, 2]).repeat(2, 1)
    query_y = torch.arange(WAY).repeat(2, 2)
    return Episode(randn(2, 9, 4), y, randn(2, 6, 4), query_y)


@pytest.fixture
def features(network) -> Callable[[torch.Tensor], np.ndarray]:
    """Compute the inputs of the last layer with NumPy."""
    weight, bias = (p.detach().numpy() for p in network.linear1.parameters())
    return lambda x: np.maximum(x.numpy() @ weight.T + bias, 0)


@pytest.fixture
def without_steps(network) -> Callable[[Init], Learner]:
    """Create a learner that adapts in no steps, in float64."""

    def make(init: Init) -> Learner:
        rule = SGD(init.layers)
        return Learner(network, init=init, rule=rule, loss=cross_entropy, num_steps=0).double()

    return make


@pytest.fixture
def check_outer_gradient(classes) -> Callable[[Learner], None]:
    """Compare the outer gradient with central finite differences."""

    def check(learner: Learner, epsilon: float = 1e-6) -> None:
        parameters = list(learner.meta_parameters())
        loss = learner(classes).query_losses.mean()
        found = torch.autograd.grad(loss, parameters, materialize_grads=True)
        for parameter, gradient in zip(parameters, found, strict=True):
            flat, wanted = parameter.data.view(-1), torch.empty(parameter.numel()).double()
            for place in range(len(flat)):
                ends = []
                for sign in (1, -1):
                    flat[place] += sign * epsilon
                    with torch.no_grad():
                        ends.append(learner(classes).query_losses.mean())
                    flat[place] -= sign * epsilon
                wanted[place] = (ends[0] - ends[1]) / (2 * epsilon)
            torch.testing.assert_close(gradient.flatten(), wanted, rtol=1e-5, atol=1e-8)

    return check
