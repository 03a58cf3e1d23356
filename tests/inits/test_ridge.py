"""R2D2's last layer against NumPy's least squares."""

import numpy as np
import pytest
import torch

from alfa.errors import ConfigError
from alfa.inits import RidgeHead


@pytest.mark.parametrize("regularization", [0.01, 50.0])
def test_logits_are_those_of_a_least_squares_fit(
    network, classes, features, without_steps, regularization
) -> None:
    init = RidgeHead(network, adapt="head", regularization=regularization, scale_start=3.0)
    outputs = without_steps(init)(classes).outputs.detach().numpy()
    for task in range(2):
        z, y = features(classes.support_x[task]), np.eye(3)[classes.support_y[task]]
        z = np.hstack([z, np.ones((9, 1))])
        # Additional rows sqrt(n lambda) I turn the penalty into squares.
        rows = np.vstack([z, np.sqrt(9 * regularization) * np.eye(7)])
        w, *_ = np.linalg.lstsq(rows, np.vstack([y, np.zeros((7, 3))]), rcond=None)
        query = np.hstack([features(classes.query_x[task]), np.ones((6, 1))])
        np.testing.assert_allclose(outputs[task], 3 * query @ w, rtol=1e-9, atol=1e-12)


def test_the_outer_gradient_is_that_of_finite_differences(
    network, without_steps, check_outer_gradient
) -> None:
    learner = without_steps(RidgeHead(network, regularization=0.1, scale_start=2.0))
    assert any(p.ndim == 0 for p in learner.meta_parameters())
    check_outer_gradient(learner)


def test_more_examples_than_features_in_single_precision(network, classes, without_steps) -> None:
    learner = without_steps(RidgeHead(network, regularization=1e-3))
    wanted = learner(classes).outputs
    found = learner.float()(classes.to(dtype=torch.float32)).outputs
    torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=1e-3)


def test_the_regularization_must_be_positive(network) -> None:
    with pytest.raises(ConfigError, match=r"`regularization` must be greater than 0, got 0\.$"):
        RidgeHead(network, regularization=0)
