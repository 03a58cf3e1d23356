"""MetaOptNet's last layer against liblinear."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from alfa.errors import ConfigError
from alfa.inits import SVMHead


@pytest.mark.parametrize("c", [0.1, 1.0])
def test_logits_are_those_of_liblinear(network, classes, features, without_steps, c) -> None:
    init = SVMHead(network, adapt="head", c=c, ridge=1e-7)
    init.scale.data.fill_(2.0)
    outputs = without_steps(init)(classes).outputs.detach().numpy()
    for task in range(2):
        z, y = features(classes.support_x[task]), classes.support_y[task].numpy()
        machine = LinearSVC(
            multi_class="crammer_singer", C=c, fit_intercept=False, tol=1e-9, max_iter=100_000
        ).fit(z, y)
        scores = machine.decision_function(features(classes.query_x[task]))
        np.testing.assert_allclose(outputs[task], 2 * scores, rtol=0, atol=2e-6)


def test_the_outer_gradient_is_that_of_finite_differences(
    network, without_steps, check_outer_gradient
) -> None:
    learner = without_steps(SVMHead(network))
    assert any(p.ndim == 0 for p in learner.meta_parameters())
    check_outer_gradient(learner)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_single_precision_is_enough(network, classes, without_steps, factor) -> None:
    classes = type(classes)(
        factor * classes.support_x, classes.support_y, factor * classes.query_x, classes.query_y
    )
    learner = without_steps(SVMHead(network))
    wanted = learner(classes).outputs
    outcome = learner.float()(classes.to(dtype=torch.float32))
    torch.testing.assert_close(outcome.outputs.double(), wanted, rtol=1e-3, atol=1e-5)
    gradients = torch.autograd.grad(outcome.losses.sum(), list(learner.init.meta_parameters())[:1])
    assert bool(gradients[0].isfinite().all())


@pytest.mark.parametrize("name", ["c", "ridge"])
def test_options_must_be_positive(network, name) -> None:
    with pytest.raises(ConfigError, match=rf"`{name}` must be greater than 0, got 0\.$"):
        SVMHead(network, **{name: 0})


def test_tasks_that_are_too_large_are_an_error(network, randn, without_steps) -> None:
    x, y = randn(1, 80, 4), torch.arange(80)[None]
    with pytest.raises(ConfigError, match=r"has 6,400 dual variables, but at most 5,000.*ridge"):
        without_steps(SVMHead(network)).adapt(x, y)
