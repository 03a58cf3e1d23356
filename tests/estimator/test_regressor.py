"""The regressor, as its users call it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from alfa import FewShotRegressor
from alfa.errors import ConfigError
from alfa.runs import Run


def _points(count: int = 10) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-4, 4, count)[:, None]
    return x, np.sin(x[:, 0])


def test_it_is_the_inner_loop_of_the_run(curves: Path) -> None:
    learner, tasks = Run.open(curves).learner("best"), Run.open(curves).tasks()
    episode = tasks.episode(0, num_tasks=1, split="test")
    outputs = learner(episode, order="none").outputs[0, :, 0].numpy()
    reg = FewShotRegressor(curves)
    reg.fit(episode.support_x[0].numpy(), episode.support_y[0, :, 0].numpy())
    np.testing.assert_allclose(
        reg.predict(episode.query_x[0].numpy()), outputs, rtol=1e-4, atol=1e-5
    )
    assert reg.support_losses_.shape == (6,)
    assert reg.rates_["beta"].shape == (5, 4)


def test_shapes_follow_the_targets(curves: Path) -> None:
    x, y = _points()
    assert FewShotRegressor(curves).fit(x, y).predict(x).shape == (10,)
    assert FewShotRegressor(curves).fit(x, y[:, None]).predict(x).shape == (10, 1)


def test_it_works_with_the_tools_of_scikit_learn(curves: Path) -> None:
    x, y = _points()
    assert cross_val_score(FewShotRegressor(curves), x, y, cv=2).shape == (2,)
    pipe = make_pipeline(StandardScaler(), FewShotRegressor(curves)).fit(x, y)
    assert pipe.predict(x).shape == (10,)
    reg = FewShotRegressor(curves, num_steps=2, checkpoint="ensemble")
    assert clone(reg).get_params() == reg.get_params()
    reg.fit(x, y)
    assert (pickle.loads(pickle.dumps(reg)).predict(x) == reg.predict(x)).all()
    with pytest.raises(NotFittedError):
        clone(reg).predict(x)


def test_a_fit_that_fails_leaves_the_last_one_as_it_was(curves: Path) -> None:
    x, y = _points()
    reg = FewShotRegressor(curves).fit(x, y)
    before = dict(vars(reg))
    with pytest.raises(ConfigError, match=r"2 feature\(s\)"):
        reg.fit(np.hstack([x, x]), y[:, None])
    assert vars(reg) == before
    assert reg.predict(x).shape == (10,)


def test_checks_of_scikit_learn_fail_by_the_number_of_features_alone(curves: Path) -> None:
    """They try several numbers, of which a run has one."""
    results = check_estimator(FewShotRegressor(curves), on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    # Some say it in words of their own, and name ours as the cause.
    whys = [(name, f"{error} {error.__cause__}") for name, error in failed]
    assert not [name for name, why in whys if "feature(s), but" not in why]
    assert sum(r["status"] == "passed" for r in results) > 10


def test_wrong_input(curves: Path, run: Path) -> None:
    x, y = _points()
    with pytest.raises(ConfigError, match="needs a run of regression"):
        FewShotRegressor(run).fit(x, y)
    with pytest.raises(ConfigError, match="`num_steps` is '3', but must be a whole number"):
        FewShotRegressor(curves, num_steps="3").fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`device` is 'gpu'"):
        FewShotRegressor(curves, device="gpu").fit(x, y)
    with pytest.raises(ConfigError, match=r"2 feature\(s\), but .* was trained on 1"):
        FewShotRegressor(curves).fit(np.hstack([x, x]), y)
    with pytest.raises(ConfigError, match=r"2 output\(s\), but .* was trained on 1"):
        FewShotRegressor(curves).fit(x, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="NaN"):
        FewShotRegressor(curves).fit(x * np.nan, y)
    with pytest.raises(ValueError, match="X has 3 features"):
        FewShotRegressor(curves).fit(x, y).predict(np.zeros((2, 3)))
